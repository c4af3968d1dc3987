package backends

import (
	"context"
	"errors"
	"testing"

	"github.com/sluice-net/sluice/renderer/secgroup"
	"github.com/sluice-net/sluice/tests/lab/secgrouptest"
)

// TestFencedNeutronIsChangedByTheLeaderAlone: a former leader that has not noticed yet makes no
// call that changes something, and may read.
func TestFencedNeutronIsChangedByTheLeaderAlone(t *testing.T) {
	var lost error
	n := secgrouptest.NewNeutron()
	f := fenced{n, func(context.Context) error { return lost }}
	create := secgroup.Op{Kind: secgroup.CreateGroup, Name: "sluice/test/1"}
	if _, err := f.Apply(t.Context(), create); err != nil {
		t.Fatal(err)
	}
	lost = errors.New("no longer the leader")
	if _, err := f.Apply(t.Context(), create); !errors.Is(err, lost) {
		t.Errorf("the error is %v", err)
	}
	if _, err := f.Ports(t.Context()); err != nil {
		t.Error(err)
	}
	if changes, _ := n.Calls(); len(changes) != 1 {
		t.Errorf("the changes are %v, want the first alone", changes)
	}
}
