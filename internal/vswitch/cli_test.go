package vswitch

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	govpp "go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/vlib"

	"github.com/sluice-net/sluice/api"
)

func TestCommandLine(t *testing.T) {
	l := newLab(t, Options{Version: "9"})
	l.apply(nil, []Rule{rule(RulePermitReflect, anyV4, anyV4, 6, Range{}, Range{First: 80, Last: 80})})
	l.permitted("web", toPod(api.TCP, 4000, 80))
	for _, c := range []struct {
		line string
		rv   govpp.VPPApiError
		want []string
	}{
		{"show version", 0, []string{"vpe sluice-vswitch 9"}},
		{"  show   interface ", 0, []string{"local0", "pod1", "shop/web", "uplink"}},
		{"show ip fib", 0, []string{"10.1.1.1/32 via sw_if_index 1", "::/0 via sw_if_index 2"}},
		{"show acl-plugin acl", 0, []string{"acl-index 0 count 1 tag {egress}", "dport 80-80 hits 1"}},
		{"show acl-plugin acl index 0", 0, []string{"acl-index 0"}},
		{"show acl-plugin acl index 5", 0, nil},
		{"show acl-plugin interface", 0, []string{"sw_if_index 0:", "sw_if_index 1:\n  input acl(s): \n  output acl(s): 0\n"}},
		{"show acl-plugin interface sw_if_index 1", 0, []string{"output acl(s): 0"}},
		{"show acl-plugin sessions", 0, []string{"Sessions total: add 1 - del 0 = 1\n"}},
		{"show acl-plugin sessions thread 0 index 0", 0, []string{"  session index 0:\n"}},
		{"show acl-plugin sessions thread 0", -1, []string{"unknown input"}},
		{"show acl-plugin sessions verbose 1", 0, []string{"= 1\n", "sw_if_index 1 egress 192.0.2.9:4000 -> 10.1.1.1:80/tcp", "tcp transient", "expires in 2m0s"}},
		{"set acl-plugin session timeout tcp transient 5", 0, nil},
		{"show acl-plugin sessions verbose 1", 0, []string{"expires in 5s"}},
		{"clear acl-plugin sessions", 0, nil},
		{"show acl-plugin sessions", 0, []string{"Sessions total: add 1 - del 1 = 0\n"}},
		{"set acl-plugin session table max-entries 7", 0, nil},
		{"set acl-plugin session table max-entries -7", -1, []string{"unknown input"}},
		{"set acl-plugin session table max-entries", -1, []string{"unknown input"}},
		{"set acl-plugin reclassify-sessions 0", 0, nil},
		{"set acl-plugin reclassify-sessions 1", 0, nil},
		{"set acl-plugin reclassify-sessions 2", -1, []string{"set acl-plugin reclassify-sessions: unknown input `2'"}},
		{"set acl-plugin session timeout tcp idle x", -1, []string{"unknown input `tcp idle x'"}},
		{"set acl-plugin session timeout sctp idle 3", -1, []string{"unknown input"}},
		{"show acl-plugin acl index", -1, []string{"show acl-plugin acl: unknown input `index'"}},
		{"show hardware", -1, []string{"show: unknown input `hardware'"}},
		{"frobnicate", -1, []string{"unknown input `frobnicate'"}},
		{"", 0, nil},
	} {
		r, err := vlib.NewServiceClient(l.conn).CliInband(t.Context(), &vlib.CliInband{Cmd: c.line})
		if got := code(t, err); got != c.rv {
			t.Errorf("%q: return value %d, want %d", c.line, got, c.rv)
		}
		for _, part := range c.want {
			if !strings.Contains(r.Reply, part) {
				t.Errorf("%q: %q is not in\n%s", c.line, part, r.Reply)
			}
		}
		if c.want == nil && r.Reply != "" {
			t.Errorf("%q: unexpected output\n%s", c.line, r.Reply)
		}
	}
}

func TestCommandLineBoundsSessionList(t *testing.T) {
	l := newLab(t, Options{})
	l.apply(both(RulePermitReflect), nil)
	for i := range uint16(maxCLISessions + 5) {
		p := fromPod(api.UDP, i+1, 53)
		l.sw.Forward(l.pod, &p)
	}
	text, _ := l.sw.cli.run("show acl-plugin sessions verbose 1")
	if !strings.HasSuffix(text, "... 5 more\n") || strings.Count(text, "\n") != maxCLISessions+3 {
		t.Errorf("%d lines, the end is %q", strings.Count(text, "\n"), text[len(text)-20:])
	}
}

func TestRoutesAndSessionsAreListedInOrder(t *testing.T) {
	l := newLab(t, Options{})
	l.apply(both(RulePermitReflect), nil)
	for _, port := range []uint16{3, 1, 2} {
		l.permitted("flow", fromPod(api.UDP, port, 53))
	}
	for i, s := range l.sw.Sessions() {
		if s.First.SrcPort != uint16(i+1) || s.Interface != "pod1" || s.Expires != l.now.Add(600*time.Second) {
			t.Errorf("session %d: %+v", i, s)
		}
	}
	if got := l.sw.Routes(); len(got) != 4 || got[0].Prefix != netip.MustParsePrefix(anyV4).String() || got[3].SwIfIndex != l.pod {
		t.Errorf("routes: %+v", got)
	}
	l.sw.ClearSessions()
	if n := len(l.sw.Sessions()); n != 0 {
		t.Errorf("%d sessions after clearing", n)
	}
}

func TestFeaturesAreListedInOrder(t *testing.T) {
	l := newLab(t, Options{Features: map[string][]string{"ip4-output": {"nat-pre-in2out-output", "acl-plugin-out-ip4-fa", "interface-output"}}})
	l.apply(nil, both(RuleDeny))
	for _, c := range []struct{ command, want string }{
		{"show features verbose", "Available feature paths\n[ 0] ip4-output:\n  [ 0]: nat-pre-in2out-output\n  [ 1]: acl-plugin-out-ip4-fa\n  [ 2]: interface-output\n"},
		{"show interface features uplink", "Feature paths configured on uplink...\n\nip4-output:\n  none configured\n"},
		{"show interface features pod1", "Feature paths configured on pod1...\n\nip4-output:\n  acl-plugin-out-ip4-fa\n"},
		{"set interface feature pod1 nat-pre-in2out-output arc ip4-output", ""},
		{"show interface features pod1", "Feature paths configured on pod1...\n\nip4-output:\n  nat-pre-in2out-output\n  acl-plugin-out-ip4-fa\n"},
		{"set interface feature pod1 nat-pre-in2out-output arc ip4-output disable", ""},
		{"show interface features pod1", "Feature paths configured on pod1...\n\nip4-output:\n  acl-plugin-out-ip4-fa\n"},
	} {
		if got, rv := l.sw.cli.run(c.command); rv != 0 || got != c.want {
			t.Errorf("%s: %d, %q, want %q", c.command, rv, got, c.want)
		}
	}
	for _, wrong := range []string{"show interface features nobody", "set interface feature pod1 acl-plugin-out-ip4-fa arc ip4-output disable",
		"set interface feature pod1 nat-pre-in2out-output arc ip4-unicast", "set interface feature pod1", "show features loud"} {
		if _, rv := l.sw.cli.run(wrong); rv == 0 {
			t.Errorf("%s is understood", wrong)
		}
	}
}
