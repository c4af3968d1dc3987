package session_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.fd.io/govpp/adapter"
	govpp "go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/session"
	"go.fd.io/govpp/binapi/vlib"
	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/renderertest"
	sluicesession "github.com/sluice-net/sluice/renderer/session"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errInjected = errors.New("injected failure")

// tap stands between GoVPP and the vswitch: it counts and fails calls.
type tap struct {
	adapter.VppAPI

	mu     sync.Mutex
	change uint16          // the id of session_rule_add_del
	reads  map[uint16]bool // ids of what changes nothing and counts as a call
	ops    int
	failAt int  // countdown to the call that fails, 0 for none
	retval bool // fail changes by a return value instead of a lost message
}

func (t *tap) learn() {
	if t.reads != nil {
		return
	}
	id := func(m govpp.Message) uint16 {
		id, _ := t.GetMsgID(m.GetMessageName(), m.GetCrcString())
		return id
	}
	t.change = id(&session.SessionRuleAddDel{})
	t.reads = map[uint16]bool{id(&session.SessionRulesV2Dump{}): true, id(&vlib.CliInband{}): true}
}

// Where fields of session_rule_add_del are.
const (
	namespaceAt = 10 + 1 + 18 + 18 + 2 + 2 + 4 + 1
	tagAt       = namespaceAt + 4 + 4
)

// SendMsg fails when it is told to. The probe by which the vswitch is understood is no
// change.
func (t *tap) SendMsg(ctx uint32, data []byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.learn()
	id := binary.BigEndian.Uint16(data)
	changes := id == t.change && !strings.HasPrefix(string(data[tagAt:]), "sluice:probe")
	if changes || t.reads[id] {
		if t.failAt > 0 {
			if t.failAt--; t.failAt == 0 {
				if !t.retval || !changes {
					return errInjected
				}
				data = slices.Clone(data)
				binary.BigEndian.PutUint32(data[namespaceAt:], 0xfefefefe)
			}
		}
	}
	if changes {
		t.ops++
	}
	return t.VppAPI.SendMsg(ctx, data)
}

// subject is a renderer over an embedded vswitch with a namespace per pod.
type subject struct {
	t          testing.TB
	sw         *vswitch.Switch
	tap        *tap
	r          *sluicesession.Renderer
	options    sluicesession.Options
	namespaces map[api.PodID]uint32
	attached   map[netip.Addr]api.PodID
	wanted     map[api.PodID][]netip.Addr
	told       map[api.PodID][]renderer.PodConfig // that may be enforced
	failed     bool                               // the last Commit
}

var (
	_ renderertest.Inspector = (*subject)(nil)
	_ renderertest.Restarter = (*subject)(nil)
	_ renderertest.Narrow    = (*subject)(nil)
)

func newSubject(t testing.TB, quirks bool, pods ...api.PodID) *subject {
	s := &subject{t: t, sw: vswitch.New(vswitch.Options{Quirks: quirks}), namespaces: map[api.PodID]uint32{},
		attached: map[netip.Addr]api.PodID{}, wanted: map[api.PodID][]netip.Addr{},
		told: map[api.PodID][]renderer.PodConfig{}}
	for _, p := range pods {
		s.namespaces[p] = s.sw.AddNamespace(sluicesession.NamespaceID(p))
	}
	s.tap = &tap{VppAPI: s.sw.Adapter()}
	s.options = sluicesession.Options{Adapter: s.tap, MaxPorts: maxPorts}
	if err := s.open(); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *subject) open() (err error) {
	s.r, err = sluicesession.New(s.options)
	return err
}

// Restart implements renderertest.Restarter.
func (s *subject) Restart() error { return errors.Join(s.r.Close(), s.open()) }

func (s *subject) Close() error                { return errors.Join(s.r.Close(), s.sw.Close()) }
func (s *subject) Renderer() renderer.Renderer { return attaching{s.r, s} }

func (s *subject) Operations() int {
	s.tap.mu.Lock()
	defer s.tap.mu.Unlock()
	return s.tap.ops
}

func (s *subject) FailNext(n int) {
	s.tap.mu.Lock()
	defer s.tap.mu.Unlock()
	s.tap.failAt = n
}

// Verdict attempts the connection: the application of a pod connects, the one of another
// accepts.
func (s *subject) Verdict(f api.Flow) api.Action {
	if f.Protocol != api.TCP && f.Protocol != api.UDP {
		return api.Deny // no transport of the host stack
	}
	if pod, ok := s.attached[f.Src]; ok && s.sw.Connect(s.namespaces[pod], f).Action == api.Deny {
		return api.Deny
	}
	if pod, ok := s.attached[f.Dst]; ok {
		return s.sw.Accept(s.namespaces[pod], f).Action
	}
	return api.Permit
}

// maxPorts is that of the narrowest range of the suite.
const maxPorts = 8010 - 8000 + 1

// Narrows implements renderertest.Narrow: there are two transports, no ranges of many ports,
// and no sources in what a pod with several addresses may connect to.
func (s *subject) Narrows(f api.Flow) bool {
	if f.Protocol != api.TCP && f.Protocol != api.UDP {
		return true
	}
	for _, cfgs := range s.told {
		for _, cfg := range cfgs {
			several := 0
			for _, ip := range cfg.IPs {
				if ip.Is4() == f.Src.Is4() {
					several++
				}
			}
			if s.failed && (isWide(cfg.Ingress, f.Protocol) || isWide(cfg.Egress, f.Protocol)) || slices.Contains(cfg.IPs, f.Src) && (several > 1 || isWide(cfg.Ingress, f.Protocol)) ||
				slices.Contains(cfg.IPs, f.Dst) && isWide(cfg.Egress, f.Protocol) {
				return true
			}
		}
	}
	return false
}

// isWide says whether a list has a range of too many ports.
func isWide(l *renderer.RuleList, p api.Protocol) bool {
	return slices.ContainsFunc(l.Rules(), func(r api.ContivRule) bool {
		return r.Protocol == p && !r.DstPort.IsAny() && (int(r.DstPort.Last)-int(r.DstPort.First) >= maxPorts)
	})
}

// Installed prints what every port of a table permits, whatever rules say so.
func (s *subject) Installed() (string, error) {
	d := s.r.Dump()
	if d.Error != "" {
		return "", errors.New(d.Error)
	}
	var lines []string
	for _, t := range d.Tables {
		lines = append(lines, fmt.Sprintf("%s %v %v", t.Name(), t.Pods, t.Rules))
	}
	if d.Global != nil {
		lines = append(lines, fmt.Sprintf("global %v", d.Global.Rules))
	}
	return strings.Join(lines, "\n"), nil
}

// Dangling implements renderertest.Inspector: rules for addresses that no pod has.
func (s *subject) Dangling() (out []string) {
	for _, r := range s.sw.SessionRules() {
		if r.Local || !r.Lcl.IsSingleIP() {
			continue
		}
		if _, ok := s.attached[r.Lcl.Addr()]; !ok {
			out = append(out, "rule for an address of no pod: "+r.String())
		}
	}
	return out
}

// attaching tells the subject which addresses pods have: a pod that is removed, or an address
// that it loses, is gone before its rules are, and a new one comes after them.
type attaching struct {
	renderer.Renderer
	s *subject
}

func (a attaching) NewTxn(resync bool) renderer.Txn {
	if resync {
		clear(a.s.wanted)
	}
	return attachingTxn{a.Renderer.NewTxn(resync), a.s}
}

type attachingTxn struct {
	renderer.Txn
	s *subject
}

func (t attachingTxn) Render(pod api.PodID, cfg renderer.PodConfig) {
	t.Txn.Render(pod, cfg)
	t.s.wanted[pod] = cfg.IPs
	t.s.told[pod] = append(t.s.told[pod], cfg)
}

func (t attachingTxn) Remove(pod api.PodID) {
	t.Txn.Remove(pod)
	delete(t.s.wanted, pod)
}

func (t attachingTxn) Commit(ctx context.Context) error {
	for ip, pod := range t.s.attached {
		if !slices.Contains(t.s.wanted[pod], ip) {
			delete(t.s.attached, ip)
		}
	}
	err := t.Txn.Commit(ctx)
	if t.s.failed = err != nil; t.s.failed {
		return err
	}
	for pod, told := range t.s.told {
		t.s.told[pod] = told[len(told)-1:]
	}
	for pod, ips := range t.s.wanted {
		for _, ip := range ips {
			t.s.attached[ip] = pod
		}
	}
	return nil
}

func TestConformance(t *testing.T) {
	renderertest.Run(t, func(t testing.TB) renderertest.Subject { return newSubject(t, false, renderertest.PodIDs...) })
}

func TestConformanceWithTheQuirksOfVPP(t *testing.T) {
	if testing.Short() {
		t.Skip("the suite runs once without quirks")
	}
	renderertest.Run(t, func(t testing.TB) renderertest.Subject {
		s := newSubject(t, true, renderertest.PodIDs...)
		s.tap.retval = true
		return s
	})
}
