package acl_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"go.fd.io/govpp/adapter"
	govpp "go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/vlib"
	"go.fd.io/govpp/core"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/renderer"
	sluiceacl "github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/renderer/renderertest"
	"github.com/sluice-net/sluice/tests/lab/harness/backends"
)

// tap is a proxy between GoVPP and the vswitch; it counts calls and makes them fail.
type tap struct {
	adapter.VppAPI

	mu      sync.Mutex
	reads   map[uint16]bool // message IDs that change nothing and count as calls
	changes map[uint16]bool // message IDs that change something
	put     uint16          // message ID of acl_add_replace
	set     uint16          // message ID of acl_interface_set_acl_list
	ops     int
	rules   int // number of rules sent
	lists   int // number of interface lists set
	calls   int
	changed func(data []byte) // called before a changing message is passed on, if not nil
	failAt  int               // countdown to the call that fails, 0 for none
	retval  bool              // fail with an error answer instead of a lost message
	failed  []byte            // the message that failed last
	pause   time.Duration     // before each change
	looks   int               // session queries
	long    time.Duration     // duration of each session query
}

var errInjected = errors.New("injected failure")

func newTap(v adapter.VppAPI) *tap { return &tap{VppAPI: v} }

func (t *tap) learn() {
	if t.changes != nil {
		return
	}
	ids := func(msgs ...govpp.Message) map[uint16]bool {
		out := make(map[uint16]bool)
		for _, m := range msgs {
			if id, err := t.GetMsgID(m.GetMessageName(), m.GetCrcString()); err == nil {
				out[id] = true
			}
		}
		return out
	}
	t.put, _ = t.GetMsgID((&acl.ACLAddReplace{}).GetMessageName(), (&acl.ACLAddReplace{}).GetCrcString())
	t.set, _ = t.GetMsgID((&acl.ACLInterfaceSetACLList{}).GetMessageName(), (&acl.ACLInterfaceSetACLList{}).GetCrcString())
	t.changes = ids(&acl.ACLAddReplace{}, &acl.ACLDel{}, &acl.ACLInterfaceSetACLList{}, &acl.ACLInterfaceAddDel{})
	t.reads = ids(&acl.ACLDump{}, &acl.ACLInterfaceListDump{}, &interfaces.SwInterfaceDump{}, &vlib.CliInband{})
}

// SendMsg fails when requested.
func (t *tap) SendMsg(ctx uint32, data []byte) error {
	t.stop(data)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.learn()
	id := binary.BigEndian.Uint16(data)
	if t.changes[id] || t.reads[id] {
		t.calls++
		if t.failAt > 0 {
			if t.failAt--; t.failAt == 0 {
				t.failed = bytes.Clone(data)
				if !t.retval || !t.changes[id] {
					return errInjected
				}
				// A request with an ACL or interface that does not exist is answered with an error.
				data = append([]byte(nil), data...)
				for i := 10; i < min(14, len(data)); i++ {
					data[i] = 0xfe
				}
			}
		}
	}
	if t.changes[id] {
		if t.ops++; t.changed != nil {
			t.changed(data)
		}
	}
	if id == t.set {
		t.lists++
	}
	if id == t.put {
		t.rules += int(binary.BigEndian.Uint32(data[78:])) // after header, index and tag
	}
	return t.VppAPI.SendMsg(ctx, data)
}

// stop waits for the time that a change, or a session query, takes.
func (t *tap) stop(data []byte) {
	t.mu.Lock()
	t.learn()
	var pause time.Duration
	switch {
	case t.changes[binary.BigEndian.Uint16(data)]:
		pause = t.pause
	case bytes.Contains(data, []byte("show acl-plugin sessions")):
		t.looks++
		pause = t.long
	}
	t.mu.Unlock()
	time.Sleep(pause)
}

func (t *tap) fail(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failAt = n
}

func (t *tap) operations() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ops
}

// subject is a renderer on an embedded vswitch with one interface for each pod.
type subject struct {
	t        testing.TB
	sw       *vswitch.Switch
	tap      *tap
	tiny     bool // tables with a few entries are large
	r        *sluiceacl.Renderer
	uplink   uint32
	ports    map[api.PodID]uint32
	router   *renderertest.Router
	wake     chan struct{}     // receives OnChange calls
	bindings *table            // used instead of tags, if not nil
	hold     bool              // block interfaces of unknown pods
	options  sluiceacl.Options // options of opened renderers
}

func newSubject(t testing.TB, pods ...api.PodID) *subject {
	return newSubjectWith(t, nil, false, pods...)
}

// newSubjectWith finds pods by bindings, if not nil.
func newSubjectWith(t testing.TB, bindings *table, hold bool, pods ...api.PodID) *subject {
	return newSubjectOver(t, vswitch.New(vswitch.Options{}), bindings, hold, pods...)
}

// newSubjectOver uses a vswitch that is empty.
func newSubjectOver(t testing.TB, sw *vswitch.Switch, bindings *table, hold bool, pods ...api.PodID) *subject {
	s := &subject{t: t, bindings: bindings, hold: hold, sw: sw, ports: make(map[api.PodID]uint32),
		wake: make(chan struct{}, 1)}
	s.router = renderertest.NewRouter(
		func(a netip.Addr, pod api.PodID) error {
			return s.sw.AddRoute(netip.PrefixFrom(a, a.BitLen()), s.ports[pod])
		},
		func(a netip.Addr) { s.sw.RemoveRoute(netip.PrefixFrom(a, a.BitLen())) })
	s.uplink = s.sw.AddInterface("uplink0", sluiceacl.UplinkTag)
	for _, all := range []string{"0.0.0.0/0", "::/0"} {
		if err := s.sw.AddRoute(netip.MustParsePrefix(all), s.uplink); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range pods {
		s.ports[p] = s.attach(p)
	}
	s.tap = newTap(s.sw.Adapter())
	s.r = s.open()
	return s
}

// attach creates an interface for a pod.
func (s *subject) attach(p api.PodID) uint32 {
	if s.bindings == nil {
		return s.sw.AddInterface(p.String(), sluiceacl.InterfaceTag(p))
	}
	name := "memif/" + p.String()
	s.bindings.names[p] = append(s.bindings.names[p], name)
	return s.sw.AddInterface(name, "")
}

// open opens a renderer on the same vswitch.
func (s *subject) open() *sluiceacl.Renderer {
	o := s.options
	if o.Audit == 0 {
		o.Audit = -1 // tests count the calls of OnChange
	}
	o.Adapter, o.Pods.BlockUnknown, o.OnChange = s.tap, s.hold, func() {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
	if s.bindings != nil {
		o.Pods.Bindings = s.bindings
	}
	r, err := sluiceacl.New(o)
	if err != nil {
		s.t.Fatal(err)
	}
	if s.tiny {
		r.Shrink()
	}
	return r
}

func (s *subject) Close() error { return errors.Join(s.r.Close(), s.sw.Close()) }

func (s *subject) Renderer() renderer.Renderer { return s.router.Over(s.r) }
func (s *subject) Operations() int             { return s.tap.operations() }
func (s *subject) FailNext(n int)              { s.tap.fail(n) }

// Installed and Dangling implement renderertest.Inspector.
func (s *subject) Installed() (string, error) { return backends.InstalledACL(s.r, s.sw) }
func (s *subject) Dangling() []string         { return backends.DanglingACL(s.sw) }

// Restart implements renderertest.Restarter.
func (s *subject) Restart() error {
	err := s.r.Close()
	s.r = s.open()
	return err
}

// Verdict sends the first packet of a flow through the vswitch.
func (s *subject) Verdict(f api.Flow) api.Action {
	s.sw.ClearSessions()
	in := s.uplink
	if pod, ok := s.router.Attached[f.Src]; ok {
		in = s.ports[pod]
	}
	return s.sw.Inject(in, vswitch.FlowPacket(f)).Verdict
}

var (
	_ renderertest.Inspector = (*subject)(nil)
	_ renderertest.Restarter = (*subject)(nil)
)

func TestConformance(t *testing.T) {
	renderertest.Run(t, func(t testing.TB) renderertest.Subject { return newSubject(t, renderertest.PodIDs...) })
}

func TestConformanceWithTablesInManySegments(t *testing.T) {
	if testing.Short() {
		t.Skip("the suite runs once with tables of one ACL")
	}
	renderertest.Run(t, func(t testing.TB) renderertest.Subject {
		s := newSubject(t, renderertest.PodIDs...)
		s.tiny = true
		s.r.Shrink()
		return s
	})
}

// without hides the messages of a plugin that is not loaded.
type without struct {
	adapter.VppAPI
	prefix string
}

func (w without) GetMsgID(name, crc string) (uint16, error) {
	if strings.HasPrefix(name, w.prefix) {
		return 0, &adapter.UnknownMsgError{MsgName: name, MsgCrc: crc}
	}
	return w.VppAPI.GetMsgID(name, crc)
}

func (s *subject) timeout() time.Duration { return time.Minute }

// cli runs a vswitch command, like an operator.
func (s *subject) cli(t *testing.T, command string) {
	t.Helper()
	conn, err := core.Connect(s.sw.Adapter())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Disconnect()
	if _, err := vlib.NewServiceClient(conn).CliInband(t.Context(), &vlib.CliInband{Cmd: command}); err != nil {
		t.Fatalf("%s: %v", command, err)
	}
}
