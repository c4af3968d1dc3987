package vpp

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/plugin"
	"github.com/sluice-net/sluice/renderer/vpp"
	"github.com/sluice-net/sluice/tests/dataplane/vpp/vpptest"
)

// TestVPPPluginSurvivesTruncatedFiles: the user of a process can truncate what it has mapped. VPP and
// the agent live, and say so; pods are blocked until the next agent makes new files.
func TestVPPPluginSurvivesTruncatedFiles(t *testing.T) {
	for _, name := range []string{"policy", "state"} {
		t.Run(name, func(t *testing.T) {
			l := newPluginLab(t)
			l.start()
			l.commit(labRules{in: web})
			l.want(true, "at first", 80)
			if err := os.Truncate(filepath.Join(l.options.Memory.Directory, name), 100); err != nil {
				t.Fatal(err)
			}
			l.passes(vswitch.FlowPacket(crossing(map[api.PodID][]netip.Addr{{}: stranger})[1])) // needs what is gone
			l.want(false, "truncated", 80)
			if out := l.CLI("show sluice"); !strings.Contains(out, "a file was truncated: all packets of pods are dropped") {
				t.Errorf("show sluice says %q", out)
			}
			if _, err := l.r.Drops(); name == "state" && !errors.Is(err, plugin.ErrCut) {
				t.Errorf("to read it is %v", err)
			}
			f := api.Flow{Src: stranger[0], Dst: addressesOf[receiver][0], Protocol: api.TCP, SrcPort: 1, DstPort: 80}
			_, errVerdict := l.r.Verdict(f)
			_, _, errCheck := l.r.Check(t.Context())
			if !errors.Is(errVerdict, plugin.ErrCut) || !errors.Is(errCheck, plugin.ErrCut) {
				t.Errorf("readers get %v and %v", errVerdict, errCheck)
			}
			for range 2 {
				if err := l.r.Apply(t.Context(), renderer.Changes{}); !errors.Is(err, plugin.ErrCut) {
					t.Errorf("a commit is %v", err)
				}
			}
			l.end()
			l.start()
			l.commit(labRules{in: web})
			l.want(true, "with new files", 80)
			l.want(false, "with new files, not permitted", 81)
		})
	}
}

// TestVPPPluginSurvivesOverwrittenHeader: what leads to memory was checked when the files were
// opened, so that other numbers lead nowhere.
func TestVPPPluginSurvivesOverwrittenHeader(t *testing.T) {
	l := newPluginLab(t)
	l.start()
	l.commit(labRules{in: web})
	f, err := os.OpenFile(filepath.Join(l.options.Memory.Directory, "policy"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	junk := make([]byte, 160) // all offsets and sizes
	for i := range junk {
		junk[i] = 0xee
	}
	if _, err := f.WriteAt(junk, 0); err != nil {
		t.Fatal(err)
	}
	l.commit(labRules{in: nobody}) // has threads read the settings again
	l.want(false, "denied", 80)
	l.CLI("show sluice")
	l.CLI("show sluice rule")
	l.commit(labRules{in: web})
	l.want(true, "permitted", 80)
	l.Kill()
	l.Start() // reads it anew
	l.Network = vpptest.NewNetwork(l.Process)
	if out := l.CLI("show sluice"); !strings.Contains(out, "the policy file is none of Sluice") {
		t.Errorf("show sluice says %q", out)
	}
}

// within is called by an Apply that has asked the plugin, and has written nothing yet.
type within func()

func (f within) InterfacesOf(api.PodID) []string { f(); return nil }
func (f within) IsPodInterface(string) bool      { return false }

// TestVPPPluginMapsNewMemoryWithPolicy: an agent with memory of another size replaces the files. Until
// it has written policy there, VPP judges by what the agent before wrote.
func TestVPPPluginMapsNewMemoryWithPolicy(t *testing.T) {
	l := newPluginLab(t)
	l.start()
	l.commit(labRules{in: web})
	l.end()
	l.options.Memory.Flows *= 2
	asked := 0
	l.options.Pods.Bindings = within(func() {
		asked++
		l.want(true, "before policy is written", 80)
		l.want(false, "before policy is written, not permitted", 81)
	})
	l.start()
	l.want(true, "before the first commit", 80)
	l.commit(labRules{in: []api.ContivRule{{Action: api.Permit, Protocol: api.TCP, DstPort: api.Port(81)}}})
	l.want(false, "by the new memory, not permitted", 80)
	l.want(true, "by the new memory", 81)
	if asked == 0 {
		t.Error("nothing was sent before policy was written")
	}
}

// TestVPPPluginMissingSetsPodsDown: a VPP without the plugin would forward everything. Interfaces of
// pods are down there, also those that come or go up later, unless ACLs enforce policy as well.
func TestVPPPluginMissingSetsPodsDown(t *testing.T) {
	v := vpptest.LaunchWith(t, "", "ping_plugin.so")
	l := &pluginLab{TB: t, Network: vpptest.NewNetwork(v)}
	wake := make(chan struct{}, 1)
	l.options = plugin.Options{Socket: v.Socket(), Memory: plugin.MemoryOptions{Directory: filepath.Join(t.TempDir(), "memory"), Lines: 1 << 18, Slots: 1 << 12, Flows: 1 << 12}}
	l.options.XDP.OnChange = func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
	t.Cleanup(l.end)
	l.plug()
	pod := l.Links[vpp.PodTag(receiver.String())].Name
	crosses := func(want bool, when string) { // to the pod: the packet generator does not ask whether an interface is up
		t.Helper()
		if state := l.CLI("show interface %s", pod); strings.Contains(state, " up ") != want {
			t.Errorf("%s: the interface is %s", when, state)
		}
		for _, f := range crossing(map[api.PodID][]netip.Addr{{}: stranger}) {
			if f.Src == addressesOf[receiver][0] || f.Src == addressesOf[receiver][1] {
				continue
			}
			l.mark++
			if got := len(l.Inject([]vpptest.Packet{{Packet: vswitch.FlowPacket(f), Mark: l.mark}}).Left) == 1; got != want {
				t.Errorf("%s: %s passes: %t, want %t", when, f, got, want)
			}
		}
	}
	crosses(true, "without an agent")
	misses := func(words string) {
		t.Helper()
		err := l.r.Apply(t.Context(), renderer.Changes{})
		if !errors.Is(err, plugin.ErrMissing) || !strings.Contains(err.Error(), words) || errors.Is(err, plugin.ErrMemory) {
			t.Errorf("the error is %v, want %q", err, words)
		}
	}
	l.options.OthersEnforce = true
	l.start()
	misses("vpp has not loaded the sluice plugin")
	crosses(true, "where ACLs enforce, too")
	l.end()
	l.options.OthersEnforce = false
	l.start()
	misses("2 interfaces of pods are down")
	crosses(false, "with an agent")
	l.Add("uplink")
	if link := l.Links["uplink"]; !strings.Contains(l.CLI("show interface %s", link.Name), " up ") {
		t.Error("an interface that is no pod's is down")
	}
	l.Do("set interface state %s up", pod)
	l.Do("set interface state %s up", l.Links[vpp.PodTag(sender.String())].Name)
	for range 2 { // an event, and the next second
		<-wake
		misses("2 interfaces of pods are down")
		crosses(false, "set up by others")
	}
}

// TestVPPPluginOfOtherReleaseIsNotLoaded: structures of VPP differ between releases, and the plugin
// says for which one it was built.
func TestVPPPluginOfOtherReleaseIsNotLoaded(t *testing.T) {
	name, config := vpptest.Plugin(t)
	v := vpptest.LaunchWith(t, config, name)
	parts := strings.SplitN(strings.TrimPrefix(v.Version(), "v"), "-", 2)
	release := strings.Join(strings.Split(parts[0], ".")[:2], ".") + "\x00"
	v.Stop()
	plugin, err := os.ReadFile(os.Getenv(vpptest.PluginVariable))
	if err != nil || !bytes.Contains(plugin, []byte(release)) {
		t.Fatalf("the plugin does not say that it is for %s: %v", release, err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), bytes.ReplaceAll(plugin, []byte(release), []byte("99.06\x00")), 0o600); err != nil {
		t.Fatal(err)
	}
	other := vpptest.New(t, vpptest.Binary(t), t.TempDir(), fmt.Sprintf("plugins { add-path %s }\n", dir), name)
	defer other.Stop()
	if loaded := other.CLI("show plugins"); strings.Contains(loaded, name) {
		t.Errorf("VPP %s has loaded the plugin for 99.06:\n%s", release, loaded)
	}
	if log := other.CLI("show logging"); !strings.Contains(log, "99.06") {
		t.Errorf("VPP does not say why:\n%s", log)
	}
}

// TestVPPPluginReportsFullConnectionTable: its size is that of the agent's setting, its fill level is
// in the state, and a full one is an error.
func TestVPPPluginReportsFullConnectionTable(t *testing.T) {
	l := newPluginLab(t)
	l.options.Memory.Flows = plugin.Flows(50)
	l.start()
	denied := renderer.NewRuleList([]api.ContivRule{{}}, nil)
	looks := func() *renderer.State {
		l.end()
		l.start()
		err := l.r.Apply(t.Context(), renderer.Changes{Resync: true})
		s := l.r.State()
		if (err == nil) != (s.Err == nil) || err != nil && !errors.Is(err, renderer.ErrConnectionsFull) {
			t.Errorf("a commit is %v", err)
		}
		return s
	}
	if s := looks(); s.Err != nil || s.Sessions == nil || s.Sessions.Max != 64 || s.Sessions.Used != 0 {
		t.Errorf("at first: %v, %+v", s.Err, s.Sessions)
	}
	l.change(true, func(c *renderer.Changes) { // answers need a connection
		c.Render(sender, renderer.PodConfig{IPs: addressesOf[sender], Egress: denied})
		c.Render(receiver, renderer.PodConfig{IPs: addressesOf[receiver]})
	})
	for range 100 {
		l.want(true, "the sender may send", 80)
	}
	s := looks()
	name := l.Links[vpp.PodTag(sender.String())].Name
	if !errors.Is(s.Err, renderer.ErrConnectionsFull) || s.Sessions.Used < 61 || !strings.Contains(s.Err.Error(), "raise --xdp-flows; ") || !strings.Contains(s.Err.Error(), "interface "+name+" with tag") {
		t.Errorf("full: %v, %+v", s.Err, s.Sessions)
	}
}
