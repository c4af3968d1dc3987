package keeper_test

import (
	"fmt"
	"testing"

	"github.com/sluice-net/sluice/plugins/endpoints/gate"
	"github.com/sluice-net/sluice/plugins/endpoints/keeper"
	"github.com/sluice-net/sluice/tests/lab/wires"
)

// BenchmarkInspectPods is what looking into the network namespaces of 100 pods costs each second.
func BenchmarkInspectPods(b *testing.B) {
	var names []string
	for i := range 100 {
		names = append(names, fmt.Sprint(i))
	}
	c := wires.New(b, names...)
	results, spaces := b.TempDir(), c.Names()
	for _, name := range names {
		c.Result(results, spaces, name, "c"+name)
	}
	k, err := keeper.New(keeper.Config{Gate: gate.New(wires.BPFFS(b) + "/sluice"), Results: results, NetNS: spaces})
	c.Must(err)
	c.Must(wires.Inside(c.Node, func() error {
		if err := k.Start(); err != nil {
			return err
		}
		for b.Loop() {
			k.InspectPods()
		}
		return nil
	}))
}
