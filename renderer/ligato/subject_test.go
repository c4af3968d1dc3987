package ligato_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/kvstore/embedded"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/plugins/kvstore"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/ligato"
	"github.com/sluice-net/sluice/renderer/renderertest"
	"github.com/sluice-net/sluice/tests/lab/leaks"
)

// etcd is a real, embedded etcd. Every subject uses its own label in it.
var etcd *kvstore.Client

func TestMain(m *testing.M) { leaks.Main(stored{m}) }

// stored are tests with an etcd.
type stored struct{ *testing.M }

func (s stored) Run() int {
	server, err := embedded.Start(context.Background(), embedded.Config{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	etcd = server.Client()
	code := s.M.Run()
	if err := server.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

var errInjected = errors.New("injected failure")

// tap is a proxy between the renderer and etcd. It counts calls (each written key is one), makes
// them fail, and passes writes to the agent.
type tap struct {
	agent  *vppAgent
	ops    int
	steps  []string // written keys; "" separates calls
	failAt int      // countdown to the call that fails, 0 for none
	late   bool     // a failing key is written nevertheless
}

func (t *tap) List(ctx context.Context, prefix string) ([]model.Entry, int64, error) {
	if t.fails() {
		return nil, 0, errInjected
	}
	return etcd.List(ctx, prefix)
}

func (t *tap) Write(ctx context.Context, puts []model.Entry, deletes []string) error {
	t.steps = append(t.steps, "")
	for _, e := range puts {
		if err := t.one(ctx, []model.Entry{e}, nil); err != nil {
			return err
		}
	}
	for _, key := range deletes {
		if err := t.one(ctx, nil, []string{key}); err != nil {
			return err
		}
	}
	return nil
}

// one writes or deletes one key.
func (t *tap) one(ctx context.Context, puts []model.Entry, deletes []string) error {
	fails := t.fails()
	if fails && !t.late {
		return errInjected
	}
	if err := ctx.Err(); err != nil {
		return err // etcd might still write it later
	}
	if err := etcd.Write(ctx, puts, deletes); err != nil {
		return err
	}
	t.ops++
	for _, e := range puts {
		t.steps = append(t.steps, "put "+strings.TrimPrefix(e.Key, t.agent.prefix))
		t.agent.put(e.Key, e.Value)
	}
	for _, key := range deletes {
		t.steps = append(t.steps, "delete "+strings.TrimPrefix(key, t.agent.prefix))
		t.agent.remove(key)
	}
	if fails {
		return errInjected
	}
	return nil
}

func (t *tap) fails() bool {
	if t.failAt == 0 {
		return false
	}
	t.failAt--
	return t.failAt == 0
}

// subject is a renderer on etcd, an agent that reads from it, and the vswitch of the agent.
type subject struct {
	t      testing.TB
	label  string
	sw     *vswitch.Switch
	tap    *tap
	r      *ligato.Renderer
	uplink uint32
	router *renderertest.Router
	claim  map[api.PodID][]string // interfaces with other than the default names
}

var (
	_ renderertest.Inspector = (*subject)(nil)
	_ renderertest.Restarter = (*subject)(nil)
	_ renderertest.Narrow    = (*subject)(nil)
)

var labels atomic.Int64

func newSubject(t testing.TB, pods ...api.PodID) *subject {
	t.Helper()
	s := &subject{t: t, label: fmt.Sprintf("agent-%d", labels.Add(1)), sw: vswitch.New(vswitch.Options{LikeVPP: true}), tap: &tap{},
		claim: map[api.PodID][]string{}}
	s.router = renderertest.NewRouter(
		func(a netip.Addr, pod api.PodID) error {
			return s.sw.AddRoute(netip.PrefixFrom(a, a.BitLen()), s.tap.agent.ports[interfaceOf(pod)])
		},
		func(a netip.Addr) { s.sw.RemoveRoute(netip.PrefixFrom(a, a.BitLen())) })
	s.tap.agent = newVPPAgent(t, "/vnf-agent/"+s.label+"/config/vpp/acls/v2/acl/", s.sw)
	s.uplink = s.plug("uplink0")
	for _, all := range []string{"0.0.0.0/0", "::/0"} {
		if err := s.sw.AddRoute(netip.MustParsePrefix(all), s.uplink); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range pods {
		s.plug(interfaceOf(p))
	}
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	return s
}

func interfaceOf(p api.PodID) string { return "tap-" + p.Namespace + "-" + p.Name }

// plug adds an interface to the vswitch and to the configuration of the agent.
func (s *subject) plug(name string) uint32 {
	s.tap.agent.ports[name] = s.sw.AddInterface(name, "")
	return s.tap.agent.ports[name]
}

// interfacesOf is the callback of the renderer.
func (s *subject) interfacesOf(p api.PodID) []string {
	if names, ok := s.claim[p]; ok {
		return names
	}
	return []string{interfaceOf(p)}
}

// Restart implements renderertest.Restarter.
func (s *subject) Restart() (err error) {
	s.r, err = ligato.New(ligato.Options{Store: s.tap, Label: s.label, Uplinks: []string{"uplink0"}, Interfaces: s.interfacesOf})
	return err
}

func (s *subject) Close() error {
	s.tap.agent.conn.Disconnect()
	return s.sw.Close()
}

func (s *subject) Renderer() renderer.Renderer { return s.router.Over(s.r) }
func (s *subject) Operations() int             { return s.tap.ops }
func (s *subject) FailNext(n int)              { s.tap.failAt = n }

// Narrows implements renderertest.Narrow: the model of the agent has no SCTP ports.
func (s *subject) Narrows(f api.Flow) bool { return f.Protocol == api.SCTP }

// Verdict sends the first packet of a flow through the vswitch.
func (s *subject) Verdict(f api.Flow) api.Action {
	s.sw.ClearSessions()
	return s.send(vswitch.FlowPacket(f))
}

func (s *subject) send(p vswitch.Packet) api.Action {
	in := s.uplink
	if pod, ok := s.router.Attached[p.Src]; ok {
		in = s.tap.agent.ports[interfaceOf(pod)]
	}
	return s.sw.Inject(in, p).Verdict
}

// Installed prints what packets can meet. Which ACL holds a table depends on history.
func (s *subject) Installed() (string, error) {
	var b strings.Builder
	for _, i := range s.sw.Interfaces() {
		fmt.Fprintf(&b, "%s\n", i.Name)
		for _, index := range slices.Concat(i.Inputs, i.Outputs) {
			rules, _ := s.sw.Rules(index)
			for _, r := range rules {
				fmt.Fprintf(&b, "  %s\n", r)
			}
			b.WriteString("  --\n")
		}
	}
	return b.String(), nil
}

// Dangling implements renderertest.Inspector.
func (s *subject) Dangling() []string {
	out := s.tap.agent.unsettled()
	entries, _, err := etcd.List(context.Background(), s.tap.agent.prefix)
	if err != nil {
		return append(out, err.Error())
	}
	if len(entries) != len(s.tap.agent.acls) {
		out = append(out, fmt.Sprintf("etcd has %d keys, the agent %d ACLs", len(entries), len(s.tap.agent.acls)))
	}
	return out
}

func TestConformance(t *testing.T) {
	renderertest.Run(t, func(t testing.TB) renderertest.Subject { return newSubject(t, renderertest.PodIDs...) })
}

func TestConformanceWithLostAnswers(t *testing.T) {
	if testing.Short() {
		t.Skip("the suite runs once with lost requests")
	}
	renderertest.Run(t, func(t testing.TB) renderertest.Subject {
		s := newSubject(t, renderertest.PodIDs...)
		s.tap.late = true
		return s
	})
}
