package xdp_test

import (
	"slices"
	"testing"

	"github.com/sluice-net/sluice/renderer/xdp"
)

// TestListPinsWhileAnotherOwnsThem lists the maps of a dataplane that runs, which keeps its lock.
func TestListPinsWhileAnotherOwnsThem(t *testing.T) {
	path := bpffs(t)
	if all, err := xdp.ListPins(path + "/none"); err == nil {
		t.Errorf("a folder that is not there has %v", all)
	}
	newWired(t, xdp.ModeAuto, xdp.KernelOptions{PinPath: path}, "a", "b")
	all, err := xdp.ListPins(path)
	if err != nil {
		t.Fatal(err)
	}
	maps := slices.DeleteFunc(slices.Clone(all), func(p xdp.Pinned) bool { return p.Map == nil })
	if len(maps) < 3 || slices.ContainsFunc(maps, func(p xdp.Pinned) bool { return p.Map.Type == "" || p.Map.MaxEntries == 0 }) {
		t.Errorf("%d of %d pins are maps: %+v", len(maps), len(all), maps)
	}
}
