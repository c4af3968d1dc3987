package neutron

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/portsecurity"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/subnets"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/renderertest"
	"github.com/sluice-net/sluice/renderer/secgroup"
	"github.com/sluice-net/sluice/renderer/secgroup/neutron"
	"github.com/sluice-net/sluice/tests/lab/harness/backends"
	"github.com/sluice-net/sluice/tests/spec/conformance"
	"github.com/sluice-net/sluice/tests/spec/conformance/replay"
)

// traced is a backend of the harness: a network in a real Neutron with OVN, whose verdicts are
// those of ovn-trace. Every address of a pod has a port. All others are behind one without port
// security.
type traced struct {
	s       *Server
	admin   *gophercloud.ServiceClient
	tap     *faulty
	options secgroup.Options
	groups  *secgroup.Renderer
	network string
	uplink  *ports.Port

	mu     sync.Mutex // a plugin commits in a goroutine of its own
	router *renderertest.Router
	ports  map[netip.Addr]*ports.Port
	synced bool
}

var _ backends.Backend = (*traced)(nil)

// cidrs hold all addresses that pods of the suites have.
var cidrs = []string{"10.0.0.0/8", "192.168.0.0/16", "172.16.0.0/12", "fd00::/8", "2001:db8::/32"}

func newTraced(s *Server, prompt func()) (b *traced, err error) {
	ctx := context.Background()
	b = &traced{s: s, tap: &faulty{calls: map[string]int{}}, ports: map[netip.Addr]*ports.Port{}}
	if b.admin, err = s.Client(ctx); err != nil {
		return nil, err
	}
	n, err := networks.Create(ctx, b.admin, networks.CreateOpts{Name: "suite"}).Extract()
	if err != nil {
		return nil, err
	}
	b.network = n.ID
	off := false
	for _, cidr := range cidrs {
		v := gophercloud.IPv4
		if strings.Contains(cidr, ":") {
			v = gophercloud.IPv6
		}
		if _, err := subnets.Create(ctx, b.admin, subnets.CreateOpts{NetworkID: n.ID, CIDR: cidr, IPVersion: v, EnableDHCP: &off}).Extract(); err != nil {
			return nil, err
		}
	}
	b.uplink, err = ports.Create(ctx, b.admin, portsecurity.PortCreateOptsExt{
		CreateOptsBuilder: ports.CreateOpts{NetworkID: n.ID, FixedIPs: []ports.IP{}, SecurityGroups: &[]string{}}, PortSecurityEnabled: &off,
	}).Extract()
	if err != nil {
		return nil, err
	}
	b.router = renderertest.NewRouter(func(netip.Addr, api.PodID) error { return nil }, func(netip.Addr) {})
	b.options = secgroup.Options{
		API: neutron.New(neutron.NoAuth(s.URL, b.tap), neutron.Options{Networks: []string{n.ID}, Timeout: patience}), Cluster: n.ID, OnChange: prompt, MaxRules: 1000,
	}
	return b, b.Restart()
}

// Restart implements backends.Backend.
func (b *traced) Restart() (err error) {
	b.groups, err = secgroup.New(b.options)
	return err
}

// Renderer implements backends.Backend.
func (b *traced) Renderer() renderer.Renderer { return pods{b.router.Over(b.groups), b} }

// Operations implements backends.Backend.
func (b *traced) Operations() int {
	b.tap.mu.Lock()
	defer b.tap.mu.Unlock()
	return b.tap.calls[http.MethodPost] + b.tap.calls[http.MethodPut] + b.tap.calls[http.MethodDelete]
}

// FailNext implements backends.Backend.
func (b *traced) FailNext(n int) { b.tap.failAt, b.tap.fault = n, fault{late: true} }

// Has implements backends.Backend.
func (b *traced) Has(a netip.Addr) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, ok := b.router.Attached[a]
	return ok
}

// Installed implements backends.Backend. Tests that compare use the Neutron in memory.
func (b *traced) Installed() (string, error) { return "", errors.New("not compared") }

// Dangling implements backends.Backend.
func (b *traced) Dangling() []string { return nil }

// Close implements backends.Backend. The network goes with the server.
func (b *traced) Close() error { return nil }

// portAt returns the port of an address.
func (b *traced) portAt(a netip.Addr) *ports.Port {
	if _, ok := b.router.Attached[a]; ok {
		return b.ports[a]
	}
	return b.uplink
}

// Trace implements backends.Backend.
func (b *traced) Trace(f api.Flow) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.synced {
		if err := b.s.OVN.Sync(context.Background()); err != nil {
			return err.Error()
		}
		b.synced = true
	}
	src, dst := b.portAt(f.Src), b.portAt(f.Dst)
	out, err := b.s.OVN.Trace(context.Background(), b.network, src.ID, microflow(f, src.MACAddress, dst.MACAddress))
	if err != nil {
		return err.Error()
	}
	return out
}

// Verdict implements backends.Backend.
func (b *traced) Verdict(f api.Flow) api.Action {
	b.mu.Lock()
	dst := b.portAt(f.Dst)
	same := dst == b.portAt(f.Src)
	b.mu.Unlock()
	const shown = 6 // ovn-trace abbreviates UUIDs
	if same || strings.Contains(b.Trace(f), fmt.Sprintf("output(%q)", dst.ID[:shown])) {
		return api.Permit // packets of a port to itself do not cross the network
	}
	return api.Deny
}

// pods makes the ports of the pods that are rendered.
type pods struct {
	renderer.Renderer
	b *traced
}

func (p pods) Unwrap() renderer.Renderer { return p.b.groups }

func (p pods) Apply(ctx context.Context, c renderer.Changes) error {
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	for _, cfg := range c.AllPods() {
		if cfg == nil {
			continue
		}
		for _, a := range cfg.IPs {
			if p.b.ports[a] != nil {
				continue
			}
			port, err := ports.Create(ctx, p.b.admin, ports.CreateOpts{NetworkID: p.b.network, FixedIPs: []ports.IP{{IPAddress: a.String()}}}).Extract()
			if err != nil {
				return err
			}
			p.b.ports[a] = port
		}
	}
	p.b.synced = false
	return p.Renderer.Apply(context.WithoutCancel(ctx), c) // a slow Neutron takes longer than a plugin grants
}

// TestOVNAnswersTheRecordedSuites replays recorded suites: policies become security groups in
// Neutron, those become ACLs in OVN, and ovn-trace says what these do. SLUICE_NEUTRON_CASES asks
// every n-th case only; through the API all take hours.
func TestOVNAnswersTheRecordedSuites(t *testing.T) {
	stride := 40
	if v := os.Getenv("SLUICE_NEUTRON_CASES"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 {
			t.Fatalf("SLUICE_NEUTRON_CASES is %q: want a number from 1", v)
		}
		stride = n
	}
	s := need(t, true)
	kind := replay.Over(backends.Kind{Name: "ovn", Slow: true, New: func(prompt func()) (backends.Backend, error) { return newTraced(s, prompt) }})
	for _, file := range conformance.Policies {
		t.Run(file, func(t *testing.T) {
			suite := *conformance.Need(t, file)
			all := suite.Cases
			suite.Cases = nil
			for i := 0; i < len(all); i += stride {
				suite.Cases = append(suite.Cases, all[i])
			}
			every := 7
			if file == conformance.Admin {
				every = 1 // it has few probes
			}
			r, err := replay.Run(t.Context(), file, &suite, conformance.Addressings[0], kind, replay.Options{Stride: every})
			if err != nil {
				t.Fatal(err)
			}
			t.Log(r.Summary())
			for _, m := range r.Reports {
				t.Error(m)
			}
			if r.Mismatches > 0 || r.Cases != len(suite.Cases) || r.Probes == 0 {
				t.Errorf("%d mismatches, %d of %d cases, %d probes", r.Mismatches, r.Cases, len(suite.Cases), r.Probes)
			}
		})
	}
}

// TestOVNAnswersAllRecordedSuites replays every case and every probe. Groups are those of a Neutron
// in memory, ACLs are made of them by the code of Neutron's driver, which
// TestOVNHasACLsOfTheDriver compares with what a whole Neutron writes.
func TestOVNAnswersAllRecordedSuites(t *testing.T) {
	s, driver := needOVN(t)
	kind := replay.Over(backends.Kind{Name: "ovn", Slow: true, New: func(prompt func()) (backends.Backend, error) { return newCompiled(s, driver, prompt) }})
	for _, file := range conformance.Policies {
		t.Run(file, func(t *testing.T) {
			suite := conformance.Need(t, file)
			begin := time.Now()
			r, err := replay.Run(t.Context(), file, suite, conformance.Addressings[0], kind, replay.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s in %s", r.Summary(), time.Since(begin).Round(time.Second))
			for _, m := range r.Reports {
				t.Error(m)
			}
			if r.Mismatches > 0 || r.Cases != len(suite.Cases) || r.Probes == 0 {
				t.Errorf("%d mismatches, %d of %d cases, %d probes", r.Mismatches, r.Cases, len(suite.Cases), r.Probes)
			}
		})
	}
}

// needOVN starts an OVN without Neutron, and the code of Neutron's driver.
func needOVN(t *testing.T) (*Server, *translator) {
	t.Helper()
	if os.Getenv("SLUICE_NEUTRON") == "" {
		t.Skip("run make test-neutron: it takes long")
	}
	if err := Missing(true); err != nil {
		t.Skip(err)
	}
	s := &Server{dir: t.TempDir()}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	var err error
	if s.OVN, err = s.startOVN(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s, needTranslator(t)
}

func needTranslator(t *testing.T) *translator {
	t.Helper()
	driver, err := startTranslator()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := driver.close(); err != nil {
			t.Error(err)
		}
	})
	return driver
}

// TestOVNHasACLsOfTheDriver: a whole Neutron writes the ACLs that the code of its driver makes of
// the groups.
func TestOVNHasACLsOfTheDriver(t *testing.T) {
	f := newFixture(t, need(t, true), secgroup.Options{})
	driver := needTranslator(t)
	f.must(f.commit(true, village(), villageSets()))
	own := f.own()
	if len(own) < 2 {
		t.Fatalf("there are %d groups", len(own))
	}
	acls := func(name string) []string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "ovn-nbctl", "--db="+f.s.OVN.NB, "--type=port-group", "acl-list", name).Output()
		f.must(err)
		var lines []string
		for line := range strings.Lines(string(out)) {
			lines = append(lines, strings.Join(strings.Fields(line), " "))
		}
		slices.Sort(lines)
		return lines
	}
	for id, g := range own {
		made, err := driver.translate(id, g.Rules)
		f.must(err)
		checkACLs(t, made, portGroupName(id), acls(made.Name))
	}
	drop, err := driver.drop(dropGroup)
	f.must(err)
	checkACLs(t, drop, dropGroup, acls(drop.Name))
}

func checkACLs(t *testing.T, made portGroup, name string, written []string) {
	t.Helper()
	var want []string
	for _, a := range made.ACLs {
		want = append(want, strings.Join(strings.Fields(a.String()), " "))
	}
	slices.Sort(want)
	if made.Name != name || len(want) == 0 || !slices.Equal(want, written) {
		t.Errorf("the driver makes of %s\n%s\nNeutron wrote of %s\n%s", made.Name, strings.Join(want, "\n"), name, strings.Join(written, "\n"))
	}
}
