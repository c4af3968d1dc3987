package neutron

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/subnets"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/secgroup"
	"github.com/sluice-net/sluice/renderer/secgroup/neutron"
	"github.com/sluice-net/sluice/tests/lab/secgrouptest"
)

// servers are started once, each by the first test that needs it.
var servers = map[bool]*Server{}

func TestMain(m *testing.M) {
	code := m.Run()
	for _, s := range servers {
		if err := s.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		if err := os.RemoveAll(s.dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// need returns the server, or skips the test where there can be none.
func need(t testing.TB, ovn bool) *Server {
	t.Helper()
	if os.Getenv("SLUICE_NEUTRON") == "" {
		t.Skip("run make test-neutron: it takes long")
	}
	if err := Missing(ovn); err != nil {
		t.Skip(err)
	}
	if os.Getuid() != 0 {
		t.Skip("MariaDB is started as another user, which needs root")
	}
	if s := servers[ovn]; s != nil {
		return s
	}
	dir, err := os.MkdirTemp("", "sluice-neutron-") //nolint:usetesting // it outlives the test
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	s, err := Start(t.Context(), dir, ovn)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("Neutron answers after %s", time.Since(begin).Round(time.Millisecond))
	servers[ovn] = s
	return s
}

// fault is how a call fails.
type fault struct {
	name   string
	status int    // of the answer; 0 for none
	body   string // of the answer
	late   bool   // the call has its effect nevertheless
}

var errLost = errors.New("the answer is lost")

// faulty counts the calls to Neutron, and makes one fail.
type faulty struct {
	mu     sync.Mutex
	calls  map[string]int // by method
	failAt int            // countdown; 0 for none
	fault  fault
}

func (f *faulty) fails(method string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[method]++
	if f.failAt == 0 {
		return false
	}
	f.failAt--
	return f.failAt == 0
}

// RoundTrip implements http.RoundTripper.
func (f *faulty) RoundTrip(req *http.Request) (*http.Response, error) {
	if !f.fails(req.Method) {
		return http.DefaultTransport.RoundTrip(req)
	}
	if f.fault.late {
		res, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			return nil, err
		}
		if err := res.Body.Close(); err != nil {
			return nil, err
		}
	}
	if f.fault.status == 0 {
		return nil, errLost
	}
	return &http.Response{
		StatusCode: f.fault.status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(f.fault.body)), Request: req,
	}, nil
}

// take returns the calls since the last time, reads first.
func (f *faulty) take() (reads, writes int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for method, n := range f.calls {
		if method == http.MethodGet {
			reads += n
		} else {
			writes += n
		}
	}
	clear(f.calls)
	return reads, writes
}

// fixture is a network of its own in a Neutron, with ports, and a renderer.
type fixture struct {
	t       testing.TB
	s       *Server
	admin   *gophercloud.ServiceClient
	network string
	project string // that the network is of; empty: without authentication
	ports   map[netip.Addr]*ports.Port
	tap     *faulty
	options secgroup.Options
	r       *secgroup.Renderer
}

func newFixture(t testing.TB, s *Server, o secgroup.Options) *fixture {
	t.Helper()
	return newFixtureIn(t, s, o, "", nil)
}

// newFixtureIn makes one in a project. nil: calls need no authentication.
func newFixtureIn(t testing.TB, s *Server, o secgroup.Options, project string, connect neutron.Connect) *fixture {
	t.Helper()
	f := &fixture{t: t, s: s, project: project, ports: map[netip.Addr]*ports.Port{}, tap: &faulty{calls: map[string]int{}}}
	var err error
	f.admin, err = s.Client(t.Context())
	f.must(err)
	n, err := networks.Create(t.Context(), f.admin, networks.CreateOpts{Name: t.Name(), ProjectID: project}).Extract()
	f.must(err)
	f.network = n.ID
	off := false
	for cidr, version := range map[string]gophercloud.IPVersion{"10.0.0.0/8": gophercloud.IPv4, "fd00::/32": gophercloud.IPv6, "192.168.0.0/16": gophercloud.IPv4} {
		_, err := subnets.Create(t.Context(), f.admin, subnets.CreateOpts{NetworkID: n.ID, ProjectID: project, CIDR: cidr, IPVersion: version, EnableDHCP: &off}).Extract()
		f.must(err)
	}
	f.options = o
	if connect == nil {
		connect = neutron.NoAuth(s.URL, f.tap)
	}
	f.options.API = neutron.New(connect, neutron.Options{Networks: []string{n.ID}, Timeout: patience})
	f.options.Cluster = strings.ToLower(n.ID[:8])
	f.restart()
	return f
}

func (f *fixture) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) restart() {
	f.t.Helper()
	var err error
	f.r, err = secgroup.New(f.options)
	f.must(err)
}

// port makes a port with fixed addresses, if there is none yet.
func (f *fixture) port(addrs ...netip.Addr) {
	f.t.Helper()
	if f.ports[addrs[0]] != nil {
		return
	}
	var fixed []ports.IP
	for _, a := range addrs {
		fixed = append(fixed, ports.IP{IPAddress: a.String()})
	}
	p, err := ports.Create(context.WithoutCancel(f.t.Context()), f.admin, ports.CreateOpts{NetworkID: f.network, ProjectID: f.project, FixedIPs: fixed}).Extract()
	f.must(err)
	for _, a := range addrs {
		f.ports[a] = p
	}
}

// commit renders pods and sets.
func (f *fixture) commit(resync bool, pods map[api.PodID]renderer.PodConfig, sets map[api.SetID][]netip.Prefix) error {
	changes := renderer.Changes{Resync: resync}
	for id, members := range sets {
		changes.UpdateSet(id, members, nil)
	}
	for pod, cfg := range pods {
		f.port(cfg.IPs...)
		changes.Render(pod, cfg)
	}
	return f.r.Apply(f.t.Context(), changes)
}

// held returns a Neutron in memory that holds what the real one does: it evaluates the rules that
// the API returns.
func (f *fixture) held() *secgrouptest.Neutron {
	f.t.Helper()
	inv, err := neutron.New(neutron.NoAuth(f.s.URL, http.DefaultTransport), neutron.Options{Networks: []string{f.network}}).Inventory(f.t.Context(), "")
	f.must(err)
	n := secgrouptest.NewNeutron()
	n.Edit(func(groups map[string]*secgroup.Group, addrs map[string]*secgroup.AddressGroup, ports map[string]*secgroup.Port) {
		clear(groups)
		for i := range inv.Groups {
			groups[inv.Groups[i].ID] = &inv.Groups[i]
		}
		for i := range inv.AddressGroups {
			addrs[inv.AddressGroups[i].ID] = &inv.AddressGroups[i]
		}
		for i := range inv.Ports {
			ports[inv.Ports[i].ID] = &inv.Ports[i]
		}
	})
	return n
}

// own returns the IDs of the groups of the fixture's cluster.
func (f *fixture) own() map[string]secgroup.Group {
	f.t.Helper()
	inv, err := f.options.API.Inventory(f.t.Context(), "sluice/"+f.options.Cluster+"/")
	f.must(err)
	out := map[string]secgroup.Group{}
	for _, g := range inv.Groups {
		out[g.ID] = g
	}
	f.tap.take()
	return maps.Clone(out)
}
