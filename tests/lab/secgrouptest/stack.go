package secgrouptest

import (
	"context"
	"fmt"
	"net/netip"
	"sync"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/secgroup"
)

// Stack is a renderer over a Neutron in memory. Every address of a pod that is rendered has a port
// before its transaction is committed.
type Stack struct {
	*Neutron
	Options secgroup.Options // of the next Restart
	Groups  *secgroup.Renderer

	mu   sync.Mutex
	pods map[api.PodID][]netip.Addr
}

// NewStack returns a stack. API and Cluster of the options are set. With default groups, ports of
// ended pods stay.
func NewStack(o secgroup.Options) (*Stack, error) {
	s := &Stack{Neutron: NewNeutron(), Options: o, pods: map[api.PodID][]netip.Addr{}}
	s.Options.API, s.Options.Cluster = s.Neutron, "test"
	return s, s.Restart()
}

// Restart replaces the renderer by one that knows nothing.
func (s *Stack) Restart() (err error) {
	s.Groups, err = secgroup.New(s.Options)
	return err
}

// Renderer returns the renderer whose pods get ports.
func (s *Stack) Renderer() renderer.Renderer { return plugged{s.Groups, s} }

// Operations returns the number of changes so far.
func (s *Stack) Operations() int {
	changes, _ := s.Calls()
	return len(changes)
}

// Verdict asks the groups about the first packet of a flow.
func (s *Stack) Verdict(f api.Flow) api.Action {
	if s.Passes(f) {
		return api.Permit
	}
	return api.Deny
}

// Installed prints what each port is permitted.
func (s *Stack) Installed() (string, error) {
	if st := s.Groups.State(); st.Err != nil || len(st.Pending) > 0 {
		return "", fmt.Errorf("the renderer is not done: %w, pending %v", st.Err, st.Pending)
	}
	return s.Neutron.Installed(), nil
}

// Dangling returns objects of the renderer to which nothing refers.
func (s *Stack) Dangling() []string { return s.Neutron.Dangling("sluice/test/") }

// Has reports whether a pod has the address.
func (s *Stack) Has(a netip.Addr) bool { return s.addrs()[a] }

func (s *Stack) addrs() map[netip.Addr]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[netip.Addr]bool{}
	for _, ips := range s.pods {
		for _, a := range ips {
			out[a] = true
		}
	}
	return out
}

// Trace describes the verdict of the groups on the first packet of a flow.
func (s *Stack) Trace(f api.Flow) string {
	return fmt.Sprintf("%s: %s\n%v\n%s", f, s.Verdict(f), s.Groups.Explain(f), s.Neutron.Installed())
}

// Close does nothing: a stack runs nothing.
func (s *Stack) Close() error { return nil }

// plugged is the renderer of a Stack.
type plugged struct {
	*secgroup.Renderer
	s *Stack
}

// Unwrap returns the renderer of groups.
func (p plugged) Unwrap() renderer.Renderer { return p.Renderer }

// Apply implements renderer.Renderer.
func (p plugged) Apply(ctx context.Context, c renderer.Changes) error {
	p.s.plug(c)
	if p.s.SetPorts(p.s.addrs(), len(p.s.Options.DefaultGroups) > 0) {
		p.s.Groups.Refresh()
	}
	return p.Renderer.Apply(ctx, c)
}

// plug notes the addresses of the pods of changes.
func (s *Stack) plug(c renderer.Changes) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.Resync {
		clear(s.pods)
	}
	for pod, cfg := range c.Pods {
		if cfg == nil {
			delete(s.pods, pod)
		} else {
			s.pods[pod] = cfg.IPs
		}
	}
}
