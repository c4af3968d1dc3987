package config

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/internal/agent/socket"
	"github.com/sluice-net/sluice/internal/lib/settings"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/renderer/xdp"
)

func flagsOf(t *testing.T, args ...string) *pflag.FlagSet {
	t.Helper()
	f := pflag.NewFlagSet("agent", pflag.ContinueOnError)
	RunFlags(f)
	if err := f.Parse(args); err != nil {
		t.Fatal(err)
	}
	return f
}

func settingsFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agent.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoadPrefersFlagsOverEnvironmentOverFile(t *testing.T) {
	path := settingsFile(t, "node: from-file\nlog-level: debug\netcd-endpoints: [a:1, b:2]\nvpp-timeout: 7s\n")
	env := []string{"SLUICE_NODE=from-env", "SLUICE_LOG_LEVEL=warn", "SLUICE_UPLINK=eth0,eth1", "SLUICE_OTHER=x", "HOME=/root"}
	c, err := Load(flagsOf(t, "--config", path, "--node", "from-flag"), env)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join([]string{c.Node.Name, c.Log.Level, strings.Join(c.Store.Etcd.Endpoints, ","), strings.Join(c.VPP.Uplinks, ","), c.VPP.Socket, c.Log.Format}, " ")
	want := "from-flag warn a:1,b:2 eth0,eth1 /run/vpp/api.sock text"
	if got != want || c.VPP.Timeout != 7*time.Second || !c.Node.AllowTraffic {
		t.Errorf("got %q, want %q; %+v", got, want, c)
	}
}

// TestLoadReadsExampleOfGuide reads the file with settings that the guide shows.
func TestLoadReadsExampleOfGuide(t *testing.T) {
	guide, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "guide", "agent.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, example, found := strings.Cut(string(guide), "```yaml\n")
	example, _, _ = strings.Cut(example, "```")
	if !found {
		t.Fatal("the guide shows no file")
	}
	c, err := Load(flagsOf(t, "--config", settingsFile(t, example)), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Check(); err != nil {
		t.Error(err)
	}
	if c.Node.Name != "node-1" || len(c.Store.Etcd.Endpoints) != 3 || len(c.Enforce.ExemptTraffic) != 3 || c.VPP.Timeout != 5*time.Second {
		t.Errorf("%+v", c)
	}
}

func TestCheckNamesWrongSettings(t *testing.T) {
	for name, tc := range map[string]struct {
		file string
		want string
	}{
		"unknown key":    {"nodee: x\n", `unknown key "nodee": did you mean node?`},
		"unlike any key": {"firewall-backend: x\n", `unknown key "firewall-backend": it is like none of the `},
		"not YAML":       {"node: [\n", "agent.yaml"},
		"wrong type":     {"vpp-timeout: soon\n", "vpp-timeout"},
		"not a sequence": {"node: {a: b}\n", "node"},
	} {
		_, err := Load(flagsOf(t, "--config", settingsFile(t, tc.file)), nil)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error is %v, want it to name %q", name, err, tc.want)
		}
	}
	if _, err := Load(flagsOf(t, "--config", "/does/not/exist"), nil); err == nil {
		t.Error("a missing file is ignored")
	}
	if _, err := settings.Level("loud"); err == nil {
		t.Error("a wrong level is accepted")
	}
	if _, err := (Config{Node: Node{Addresses: []string{"10.0.0"}}}).Node.FurtherAddresses(); err == nil {
		t.Error("a wrong address is accepted")
	}
}

func TestLoadTakesFileNameFromEnvironment(t *testing.T) {
	path, other := settingsFile(t, "node: from-file\n"), settingsFile(t, "node: from-other\n")
	c, err := Load(flagsOf(t), []string{"SLUICE_CONFIG=" + path})
	if err != nil || c.Node.Name != "from-file" {
		t.Errorf("node is %q, %v", c.Node.Name, err)
	}
	c, err = Load(flagsOf(t, "--config", other), []string{"SLUICE_CONFIG=" + path})
	if err != nil || c.Node.Name != "from-other" {
		t.Errorf("with the flag node is %q, %v", c.Node.Name, err)
	}
}

func TestLoadTakesEmptyVariableForNone(t *testing.T) {
	path := settingsFile(t, "node: from-file\n")
	c, err := Load(flagsOf(t, "--config", path), []string{"SLUICE_XDP_MODE=", "SLUICE_NODE=", "SLUICE_ETCD_ENDPOINTS=", "SLUICE_VPP_TIMEOUT="})
	if err != nil || c.IsDev() || c.Node.Name != "from-file" || len(c.Store.Etcd.Endpoints) == 0 || c.VPP.Timeout == 0 {
		t.Errorf("%v: %+v", err, c)
	}
}

func TestLoadReadsListsAndSwitchesOfEnvironment(t *testing.T) {
	env := []string{"SLUICE_ETCD_ENDPOINTS= a:1 , b:2,", "SLUICE_UPLINK=", "SLUICE_ALLOW_NODE_TRAFFIC=false", "SLUICE_VPP_TIMEOUT=1m"}
	c, err := Load(flagsOf(t), env)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(c.Store.Etcd.Endpoints, "|"); got != "a:1|b:2" || len(c.VPP.Uplinks) != 0 || c.Node.AllowTraffic || c.VPP.Timeout != time.Minute {
		t.Errorf("got %q and %+v", got, c)
	}
	for _, wrong := range []string{"SLUICE_ALLOW_NODE_TRAFFIC=perhaps", "SLUICE_VPP_TIMEOUT=soon"} {
		if _, err := Load(flagsOf(t), []string{wrong}); err == nil {
			t.Errorf("%s is accepted", wrong)
		}
	}
}

func TestCheckNamesExemptTraffic(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want renderer.Infra
	}{
		{nil, renderer.Infra{}},
		{[]string{"--exempt-traffic="}, renderer.Infra{NoNeighbours: true, NoErrors: true}},
		{[]string{"--exempt-traffic", "icmp-errors"}, renderer.Infra{NoNeighbours: true}},
		{[]string{"--exempt-traffic", "neighbours,icmp-errors,10.0.0.254", "--exempt-traffic", "fd00::/120"}, renderer.Infra{
			Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.254/32"), netip.MustParsePrefix("fd00::/120")}}},
	} {
		c, err := Load(flagsOf(t, tt.args...), nil)
		if err != nil {
			t.Fatal(err)
		}
		n, err := c.ACL()
		if d := cmp.Diff(tt.want, n.Infra, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); err != nil || d != "" {
			t.Errorf("%v: %v %s", tt.args, err, d)
		}
		if n.Flows.Established != acl.Revoke || n.Flows.Grace != 5*time.Minute || n.Flows.UDPIdle != 2*time.Minute {
			t.Errorf("%v: %+v", tt.args, n)
		}
	}
	c, err := Load(flagsOf(t, "--established", "cut", "--exempt-traffic", "10.0.0.0/33", "--node-address", "x"), nil)
	if err != nil {
		t.Fatal(err)
	}
	err = c.Check()
	for _, want := range []string{"--established", "--exempt-traffic", "--node-address"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error %v does not name %s", err, want)
		}
	}
	c, err = Load(flagsOf(t, "--acl-orientation", "split"), nil)
	if _, e := c.ACL(); err != nil || e == nil || !strings.Contains(e.Error(), "--established keep") {
		t.Errorf("split that revokes: %v, %v", err, e)
	}
	c, err = Load(flagsOf(t, "--acl-orientation", "split", "--established", "keep"), nil)
	if n, e := c.ACL(); err != nil || e != nil || n.Orientation != acl.Split {
		t.Errorf("%v, %v: %s", err, e, n.Orientation)
	}
	c, err = Load(flagsOf(t, "--established", "keep"), nil)
	if n, e := c.ACL(); err != nil || e != nil || n.Flows.Established != acl.Keep {
		t.Errorf("%v, %v: %s", err, e, n.Flows.Established)
	}
}

func TestCheckOfACLTarget(t *testing.T) {
	for _, tc := range []struct {
		config Config
		want   string
	}{
		{Config{}, ""},
		{Config{Ligato: Ligato{Target: "govpp", Interface: "tap"}}, ""},
		{Config{Ligato: Ligato{Target: "ligato"}}, ""},
		{Config{Ligato: Ligato{Target: "ligato", Interface: "tap-{namespace}-{name}"}}, ""},
		{Config{Ligato: Ligato{Target: "ligato", Interface: "tap-{name}"}}, "{namespace} is missing"},
		{Config{Ligato: Ligato{Target: "vpp"}}, "want govpp or ligato"},
	} {
		err := tc.config.Ligato.check()
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v, want %q", tc.config, err, tc.want)
		}
	}
}

func TestCheckOfRenderers(t *testing.T) {
	for _, tc := range []struct {
		config Config
		want   string
	}{
		{Config{}, ""},
		{Config{Enforce: Enforce{Renderers: []string{"acl"}}}, ""},
		{Config{Enforce: Enforce{Renderers: []string{"acl", "session"}}}, ""},
		{Config{Enforce: Enforce{Renderers: []string{"session"}}}, "acl is missing"},
		{Config{Enforce: Enforce{Renderers: []string{"acl", "xdp"}}, Kernel: Kernel{Mode: "auto"}}, ""},
		{Config{Enforce: Enforce{Renderers: []string{"xdp"}}, Kernel: Kernel{Mode: "xdp-pod"}}, "use auto"},
		{Config{Enforce: Enforce{Renderers: []string{"xdp"}}, Kernel: Kernel{Mode: "none"}}, "xdp-mode"},
		{Config{Enforce: Enforce{Renderers: []string{"xdp"}}, Kernel: Kernel{Mode: "auto", Flows: xdp.MaxFlows + 1}}, "want 8388608 at most"},
		{Config{Enforce: Enforce{Renderers: []string{"xdp"}}, Kernel: Kernel{Mode: "tcx"}}, "want auto, clsact, xdp or generic"},
		{Config{Enforce: Enforce{Renderers: []string{"xdp"}}}, "dev has none"},
		{Config{Enforce: Enforce{Renderers: []string{"xdp"}}, Kernel: Kernel{Mode: "auto"}, Link: Link{NonIP: "allow", Tunnels: "drop", TunnelPorts: []int{1, 65535}}}, ""},
		{Config{Enforce: Enforce{Renderers: []string{"xdp"}}, Kernel: Kernel{Mode: "auto"}, Link: Link{NonIP: "pass"}}, `--non-ip "pass": want drop or allow`},
		{Config{Enforce: Enforce{Renderers: []string{"xdp"}}, Kernel: Kernel{Mode: "auto"}, Link: Link{Tunnels: "yes"}}, `--pod-tunnels "yes": want drop or allow`},
		{Config{Enforce: Enforce{Renderers: []string{"xdp"}}, Kernel: Kernel{Mode: "auto"}, Link: Link{TunnelPorts: []int{4789, 65536}}}, "--pod-tunnel-ports 65536: want 1 to 65535"},
		{Config{Enforce: Enforce{Renderers: []string{"xdp"}}, Kernel: Kernel{Mode: "auto"}, Link: Link{TunnelPorts: []int{1, 2, 3, 4, 5, 6, 7, 8, 9}}}, "9 ports, want 8 at most"},
		{Config{Enforce: Enforce{Renderers: []string{"acl", "ebpf"}}, Kernel: Kernel{Mode: "auto"}}, "want acl, session, vpp-plugin or xdp"},
		{Config{Enforce: Enforce{Renderers: []string{"vpp-plugin"}}, Kernel: Kernel{Mode: "auto"}}, ""},
		{Config{Enforce: Enforce{Renderers: []string{"acl", "vpp-plugin"}}, Kernel: Kernel{Mode: "auto"}}, ""},
		{Config{Enforce: Enforce{Renderers: []string{"vpp-plugin"}}}, "vpp-plugin needs a VPP"},
		{Config{Enforce: Enforce{Renderers: []string{"vpp-plugin", "xdp"}}, Kernel: Kernel{Mode: "auto"}}, "leave out vpp-plugin or xdp"},
		{Config{Enforce: Enforce{Renderers: []string{"vpp-plugin"}}, Kernel: Kernel{Mode: "auto"}, Ligato: Ligato{Target: "ligato"}}, "vpp-plugin needs the binary API"},
		{Config{Enforce: Enforce{Renderers: []string{"acl", "session"}}, Ligato: Ligato{Target: "ligato"}}, "needs the binary API"},
	} {
		err := tc.config.checkBackends()
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v, want %q", tc.config, err, tc.want)
		}
	}
}

// TestCheckReportsSettingsWithoutEffect of what was given, wherever that was.
func TestCheckReportsSettingsWithoutEffect(t *testing.T) {
	for want, args := range map[string][]string{
		"":                      {"--acl-memory", "64", "--vpp-socket", "/run/vpp.sock"},
		"xdp-flows xdp-uplink":  {"--xdp-uplink", "eth0", "--xdp-flows", "64"},
		"take-over":             {"--take-over"},
		"policy-memory":         {"--policy-memory", "64"},
		"ligato-label":          {"--ligato-label", "x", "--state-file", "/tmp/state"},
		"acl-memory vpp-socket": {"--renderers", "xdp", "--xdp-flows", "64", "--acl-memory", "64", "--vpp-socket", "/run/vpp.sock"},
		"vpp-plugin-memory":     {"--vpp-plugin-memory", "/run/m"},
		"xdp-mode":              {"--renderers", "vpp-plugin", "--xdp-mode", "xdp", "--xdp-flows", "64", "--policy-memory", "64", "--vpp-plugin-memory", "/run/m"},
		"vpp-stats-socket":      {"--acl-target", "ligato", "--ligato-label", "x", "--vpp-stats-socket", "/run/stats.sock"},
	} {
		flags := flagsOf(t, args...)
		cfg, err := Load(flags, nil)
		if err != nil {
			t.Fatal(err)
		}
		given, err := settings.Given(flags, nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, idle := range cfg.Idle(given) {
			got = append(got, idle.Name)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%v: %q have no effect, want %q", args, got, want)
		}
	}
	path := settingsFile(t, "xdp-flows: 64")
	given, err := settings.Given(flagsOf(t, "--config", path), []string{"SLUICE_XDP_SAMPLE=3", "SLUICE_NOTHING=1"})
	if want := []string{"config", "xdp-flows", "xdp-sample"}; err != nil || !cmp.Equal(given, want) {
		t.Errorf("%q are given, want %q: %v", given, want, err)
	}
}

func TestLogNamesDataplanesAndNode(t *testing.T) {
	for want, args := range map[string][]string{
		"[renderers [acl] target govpp vpp /run/vpp/api.sock]":                   nil,
		"[renderers [acl] target ligato]":                                        {"--acl-target", "ligato"},
		"[renderers [xdp] xdp_mode clsact]":                                      {"--renderers", "xdp", "--xdp-mode", "clsact"},
		"[renderers [acl xdp] target govpp vpp /run/vpp/api.sock xdp_mode auto]": {"--renderers", "acl,xdp"},
		"[renderers [acl session] target govpp vpp /run/vpp/api.sock]":           {"--renderers", "acl,session"},
		"[renderers [vpp-plugin] plugin_memory /run/m]":                          {"--renderers", "vpp-plugin", "--vpp-plugin-memory", "/run/m"},
	} {
		cfg, err := Load(flagsOf(t, args...), nil)
		if got := fmt.Sprint(cfg.Enforcers()); err != nil || got != want {
			t.Errorf("%v: %s, want %s: %v", args, got, want, err)
		}
	}
}

// TestDevOffersOnlyItsRenderers: xdp is for run.
func TestDevOffersOnlyItsRenderers(t *testing.T) {
	usage := func(set func(*pflag.FlagSet)) string {
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		set(f)
		return f.Lookup("renderers").Usage
	}
	if text := usage(DevFlags); strings.Contains(text, "xdp") || !strings.Contains(text, "session") {
		t.Errorf("dev: %s", text)
	}
	if text := usage(RunFlags); !strings.Contains(text, "xdp") {
		t.Errorf("run: %s", text)
	}
	if err := (Config{Enforce: Enforce{Renderers: []string{"ebpf"}}}).checkBackends(); err == nil || !strings.HasSuffix(err.Error(), "want acl or session") {
		t.Errorf("dev: %v", err)
	}
}

func TestListenSettingsNameGroup(t *testing.T) {
	for text, want := range map[string]int{"": socket.NoGroup, "0": 0, "root": 0, "54322": 54322} {
		if got, err := (Listen{APIGroup: text}).Group(); got != want || err != nil {
			t.Errorf("%q is %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"no such group", "-1", "4294967295"} {
		if _, err := (Listen{APIGroup: text}).Group(); err == nil || !strings.Contains(err.Error(), "--api-group") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
