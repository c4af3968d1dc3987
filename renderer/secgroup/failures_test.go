package secgroup_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/secgroup"
	"github.com/sluice-net/sluice/tests/lab/secgrouptest"
)

var errBroken = errors.New("broken")

// broken is a Neutron some of whose calls fail.
type broken struct {
	*secgrouptest.Neutron
	down bool // no call works
	// apply is called instead of each change. nil: the change is made.
	apply func(context.Context, secgroup.Op) (secgroup.Result, error)
}

func (b *broken) Inventory(ctx context.Context, prefix string) (*secgroup.Inventory, error) {
	if b.down {
		return nil, errBroken
	}
	return b.Neutron.Inventory(ctx, prefix)
}

func (b *broken) Ports(ctx context.Context) ([]secgroup.Port, error) {
	if b.down {
		return nil, errBroken
	}
	return b.Neutron.Ports(ctx)
}

func (b *broken) Apply(ctx context.Context, op secgroup.Op) (secgroup.Result, error) {
	switch {
	case b.down:
		return secgroup.Result{}, errBroken
	case b.apply != nil:
		return b.apply(ctx, op)
	}
	return b.Neutron.Apply(ctx, op)
}

func brokenStack(t *testing.T, o secgroup.Options) (*secgrouptest.Stack, *broken) {
	t.Helper()
	s := stack(t, o)
	b := &broken{Neutron: s.Neutron}
	s.Options.API = b
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	return s, b
}

// TestRendererCompletesHalfOfABulk that Neutron has made before it failed: nothing is begun anew,
// and meanwhile the port keeps its group.
func TestRendererCompletesHalfOfABulk(t *testing.T) {
	s, b := brokenStack(t, pooled())
	must(t, s, map[api.PodID]renderer.PodConfig{web: closedTo("10.0.0.1", "10.0.0.9/32")})
	b.apply = func(ctx context.Context, op secgroup.Op) (secgroup.Result, error) {
		if op.Kind != secgroup.CreateRules {
			return b.Neutron.Apply(ctx, op)
		}
		op.Rules = op.Rules[:len(op.Rules)/2]
		if _, err := b.Neutron.Apply(ctx, op); err != nil {
			return secgroup.Result{}, err
		}
		return secgroup.Result{}, errBroken
	}
	var nets []string
	for i := range 40 {
		nets = append(nets, fmt.Sprintf("10.1.%d.0/25", i))
	}
	if err := commit(t, s, map[api.PodID]renderer.PodConfig{web: closedTo("10.0.0.1", nets...)}); !errors.Is(err, errBroken) {
		t.Fatalf("the error is %v", err)
	}
	if !s.Passes(flow("10.0.0.9", "10.0.0.1", 80)) || s.Passes(flow("10.1.39.1", "10.0.0.1", 80)) || s.Passes(flow("10.2.0.1", "10.0.0.1", 80)) {
		t.Errorf("half of a bulk changes what is permitted:\n%s", s.Neutron.Installed())
	}
	b.apply = nil
	ops := must(t, s, nil)
	for _, op := range ops {
		if op.Kind == secgroup.CreateGroup || op.Kind == secgroup.CreateRules && len(op.Rules) > 20 {
			t.Errorf("it begins anew: %q", kinds(ops))
		}
	}
	if s.Passes(flow("10.0.0.9", "10.0.0.1", 80)) || !s.Passes(flow("10.1.39.1", "10.0.0.1", 80)) || len(s.Dangling()) > 0 {
		t.Errorf("it is not completed, or leaves %q", s.Dangling())
	}
}

// TestRendererGroupVanishesUnderIt: another program deletes the new group before a port has it. The
// port keeps the old one.
func TestRendererGroupVanishesUnderIt(t *testing.T) {
	s, b := brokenStack(t, pooled())
	pods := map[api.PodID]renderer.PodConfig{web: closedTo("10.0.0.1", "10.0.0.9/32"), other: closedTo("10.0.0.2", "10.0.0.9/32")}
	must(t, s, pods)
	vanished := ""
	b.apply = func(ctx context.Context, op secgroup.Op) (secgroup.Result, error) {
		if op.Kind == secgroup.SetGroups && vanished == "" {
			vanished = op.Groups[0]
			s.Edit(func(groups map[string]*secgroup.Group, _ map[string]*secgroup.AddressGroup, _ map[string]*secgroup.Port) {
				delete(groups, vanished)
			})
		}
		return b.Neutron.Apply(ctx, op)
	}
	change := map[api.PodID]renderer.PodConfig{web: closedTo("10.0.0.1", "10.0.0.8/32")} // other keeps the group of both
	if err := commit(t, s, change); err == nil || !strings.Contains(err.Error(), vanished) {
		t.Fatalf("the error %v does not name group %q", err, vanished)
	}
	if !s.Passes(flow("10.0.0.9", "10.0.0.1", 80)) || s.Passes(flow("10.0.0.8", "10.0.0.1", 80)) || s.Passes(flow("10.0.0.7", "10.0.0.1", 80)) {
		t.Errorf("the port does not keep its group:\n%s", s.Neutron.Installed())
	}
	must(t, s, nil)
	if s.Passes(flow("10.0.0.9", "10.0.0.1", 80)) || !s.Passes(flow("10.0.0.8", "10.0.0.1", 80)) || !s.Passes(flow("10.0.0.9", "10.0.0.2", 80)) {
		t.Errorf("it is not made again:\n%s", s.Neutron.Installed())
	}
}

// TestRendererCatchesUpByDifference: no call works while policies change and pods come and go. Then
// one Apply makes up the difference between the first state and the last, and no more.
func TestRendererCatchesUpByDifference(t *testing.T) {
	s, b := brokenStack(t, pooled())
	must(t, s, map[api.PodID]renderer.PodConfig{web: closedTo("10.0.0.1", "10.0.0.9/32"), other: closedTo("10.0.0.2", "10.0.0.9/32")})
	before := s.Neutron.Installed()
	b.down = true
	const changes = 120 // an hour of one in 30 s
	for i := range changes {
		err := commit(t, s, map[api.PodID]renderer.PodConfig{
			web: closedTo("10.0.0.1", fmt.Sprintf("10.0.1.%d/32", i)), other: closedTo("10.0.0.2", "10.0.0.9/32"),
		})
		if !errors.Is(err, errBroken) || renderer.IsRefused(err) {
			t.Fatalf("change %d: the error is %v, want one that is tried again", i, err)
		}
		if i%10 == 0 {
			s.Groups.Refresh()
		}
	}
	if now := s.Neutron.Installed(); now != before {
		t.Errorf("ports had\n%s\nand have\n%s", before, now)
	}
	b.down = false
	if ops := must(t, s, nil); len(ops) > 6 {
		t.Errorf("after %d changes it takes %q", changes, kinds(ops))
	}
	last := flow(fmt.Sprintf("10.0.1.%d", changes-1), "10.0.0.1", 80)
	if !s.Passes(last) || s.Passes(flow("10.0.1.1", "10.0.0.1", 80)) || s.Passes(flow("10.0.0.9", "10.0.0.1", 80)) || !s.Passes(flow("10.0.0.9", "10.0.0.2", 80)) || len(s.Dangling()) > 0 {
		t.Errorf("it has not caught up, or leaves %q:\n%s", s.Dangling(), s.Neutron.Installed())
	}
	if ops := must(t, s, nil); len(ops) > 0 {
		t.Errorf("then it goes on with %q", kinds(ops))
	}
}

// TestRendererMayNotChangeAnything: each kind of change is refused for ever, as to a project
// without rights. No port is opened that was closed, what works goes on, and with rights all is
// made up.
func TestRendererMayNotChangeAnything(t *testing.T) {
	for kind := secgroup.CreateGroup; kind <= secgroup.SetGroups; kind++ {
		t.Run(kind.String(), func(t *testing.T) {
			o := pooled()
			o.AddressGroups = true
			s, b := brokenStack(t, o)
			many := []string{"10.0.0.16/32", "10.0.0.18/32", "10.0.0.20/32", "10.0.0.22/32", "10.0.0.24/32"} // more than stay in rules
			must(t, s, map[api.PodID]renderer.PodConfig{web: closedTo("10.0.0.1", many...)})
			refused := 0
			b.apply = func(ctx context.Context, op secgroup.Op) (secgroup.Result, error) {
				if op.Kind == kind {
					refused++
					return secgroup.Result{}, errBroken
				}
				return b.Neutron.Apply(ctx, op)
			}
			next := map[api.PodID]renderer.PodConfig{web: closedTo("10.0.0.1", append(many[1:], "10.0.0.30/32")...), other: closedTo("10.0.0.2", "10.0.0.9/32")}
			err := commit(t, s, next)
			for range 3 {
				err = errors.Join(err, commit(t, s, nil))
			}
			if refused > 0 && !errors.Is(err, errBroken) {
				t.Errorf("%d calls were refused, and nothing is reported: %v", refused, err)
			}
			if s.Passes(flow("10.0.0.99", "10.0.0.1", 80)) {
				t.Errorf("a port was opened:\n%s", s.Neutron.Installed())
			}
			b.apply = nil
			must(t, s, nil)
			if s.Passes(flow("10.0.0.16", "10.0.0.1", 80)) || !s.Passes(flow("10.0.0.30", "10.0.0.1", 80)) || s.Passes(flow("10.0.0.99", "10.0.0.2", 80)) || len(s.Dangling()) > 0 {
				t.Errorf("it is not made up, or leaves %q:\n%s", s.Dangling(), s.Neutron.Installed())
			}
		})
	}
}

// TestRendererClosesWithoutQuota: not even an empty group can be created. Pods without a group of
// Sluice are closed nevertheless: their ports have no group.
func TestRendererClosesWithoutQuota(t *testing.T) {
	s, b := brokenStack(t, pooled())
	must(t, s, map[api.PodID]renderer.PodConfig{web: closedTo("10.0.0.1", "10.0.0.9/32")})
	rules := func() (n int) {
		s.Edit(func(groups map[string]*secgroup.Group, _ map[string]*secgroup.AddressGroup, _ map[string]*secgroup.Port) {
			for _, g := range groups {
				n += len(g.Rules)
			}
		})
		return n
	}
	limit := rules() + 2
	b.apply = func(ctx context.Context, op secgroup.Op) (secgroup.Result, error) {
		if op.Kind == secgroup.CreateGroup && rules()+2 > limit || op.Kind == secgroup.CreateRules && rules()+len(op.Rules) > limit {
			return secgroup.Result{}, secgroup.ErrQuota
		}
		return b.Neutron.Apply(ctx, op)
	}
	third := api.PodID{Namespace: "shop", Name: "third"}
	pods := map[api.PodID]renderer.PodConfig{other: closedTo("10.0.0.2", "10.0.0.9/32", "10.0.0.7/32"), third: closedTo("10.0.0.3")}
	for range 2 {
		if err := commit(t, s, pods); !errors.Is(err, secgroup.ErrQuota) {
			t.Fatalf("the error is %v", err)
		}
		if s.Passes(flow("10.0.0.9", "10.0.0.2", 80)) || s.Passes(flow("10.0.0.9", "10.0.0.3", 80)) || !s.Passes(flow("10.0.0.9", "10.0.0.1", 80)) {
			t.Errorf("a pod is open, or one lost its group:\n%s", s.Neutron.Installed())
		}
	}
	b.apply = nil
	must(t, s, nil)
	if !s.Passes(flow("10.0.0.9", "10.0.0.2", 80)) || s.Passes(flow("10.0.0.9", "10.0.0.3", 80)) || len(s.Dangling()) > 0 {
		t.Errorf("with quota again it is not enforced, or leaves %q", s.Dangling())
	}
}
