package vpp

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.fd.io/govpp/binapi/session"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	rules "github.com/sluice-net/sluice/renderer/session"
	"github.com/sluice-net/sluice/tests/dataplane/vpp/vpptest"
)

// vclPort is that of the server's control connections; data goes to the next one.
const vclPort = 22000

// vclStack is hostStack with sockets that applications of other processes attach by.
func vclStack(t *testing.T, routers func(*vpptest.Process, func(int, api.PodID))) (v *vpptest.Process, run func(pod api.PodID, program string, args ...string)) {
	t.Helper()
	programs := filepath.Dir(vpptest.Binary(t))
	if _, err := os.Stat(filepath.Join(programs, "vcl_test_server")); err != nil {
		t.Skip("vcl_test_server is not beside the vpp binary")
	}
	dir := t.TempDir()
	v = vpptest.Launch(t)
	// Before the session layer is on: then there are namespaces.
	if _, err := session.NewServiceClient(v.Conn).SessionSapiEnableDisable(t.Context(), &session.SessionSapiEnableDisable{IsEnable: true}); err != nil {
		t.Fatal(err)
	}
	v.Do("session enable rt-backend rule-table")
	secrets := map[api.PodID]int{}
	routers(v, func(i int, pod api.PodID) {
		secrets[pod] = i + 1
		v.Do("app ns add id %s secret %d if loop%d sock-name %s/%s.sock", rules.NamespaceID(pod), i+1, i, dir, pod.Name)
	})
	run = func(pod api.PodID, program string, args ...string) {
		config := filepath.Join(dir, pod.Name+".conf")
		text := fmt.Sprintf("vcl {\n  app-scope-local\n  app-scope-global\n  app-socket-api %s/%s.sock\n  namespace-id %s\n  namespace-secret %d\n}\n",
			dir, pod.Name, rules.NamespaceID(pod), secrets[pod])
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		start(t, config, filepath.Join(programs, program), args...)
	}
	return v, run
}

// sessions counts the lines of VPP's sessions that have an address of their own and a state.
func sessions(v *vpptest.Process, own, state string) (n int) {
	for line := range strings.Lines(v.CLI("show session thread 0 lcl %s verbose 1 force-print", own)) {
		if strings.Contains(line, state) {
			n++
		}
	}
	return n
}

// talking is vclStack with VPP's test client, which sends to its test server, both processes of
// their own.
func talking(t *testing.T, o rules.Options) (*vpptest.Process, *rules.Renderer) {
	t.Helper()
	v, run := vclStack(t, twoRouters)
	o.Socket = v.Socket()
	r := openRules(t, o)
	tell(t, r, nil, nil)
	run(serverPod, "vcl_test_server", fmt.Sprint(vclPort))
	vpptest.Eventually(t, "the server to listen", func() bool { return sessions(v, "10.0.0.1", "LISTEN") == 2 })
	run(clientPod, "vcl_test_client", "-U", "-X", "-N", "2000000000", "-T", "2048", "10.0.0.1", fmt.Sprint(vclPort))
	vpptest.Eventually(t, "the client to send", func() bool { return areOpen(v, "10.0.0.1") && areOpen(v, "10.0.1.1") })
	return v, r
}

// areOpen reports whether both connections are open, that of control and that of data.
func areOpen(v *vpptest.Process, own string) bool { return sessions(v, own, "ESTABLISHED") == 2 }

// TestVPPConnectionsOfVCLAreRevoked denies established connections. VPP asks the server
// to close them, and it does.
func TestVPPConnectionsOfVCLAreRevoked(t *testing.T) {
	v, r := talking(t, rules.Options{})
	permitted := api.ContivRule{Action: api.Permit, Src: api.AddrNet(clientIPs[0]), Protocol: api.TCP, DstPort: api.Ports(vclPort, vclPort+1)}
	tell(t, r, nil, []api.ContivRule{permitted, denyRest})
	if !areOpen(v, "10.0.0.1") || r.State().Forbidden != 0 {
		t.Fatalf("a connection that is permitted is closed, or counted: %d\n%s", r.State().Forbidden, v.CLI("show session verbose"))
	}
	tell(t, r, nil, []api.ContivRule{denyRest})
	vpptest.Eventually(t, "the server to close", func() bool { return sessions(v, "10.0.0.1", "ESTABLISHED") == 0 })
	vpptest.Eventually(t, "the client to lose its connections", func() bool { return !areOpen(v, "10.0.1.1") })
	vpptest.Eventually(t, "nothing to be counted", func() bool {
		tell(t, r, nil, []api.ContivRule{denyRest})
		return r.State().Forbidden == 0
	})
}

// TestVPPConnectionsNotClosedAreCounted denies what the client may connect to.
// It never stops writing, and ignores the request to close.
func TestVPPConnectionsNotClosedAreCounted(t *testing.T) {
	v, r := talking(t, rules.Options{})
	tell(t, r, []api.ContivRule{denyRest}, nil)
	if n := r.State().Forbidden; n != 2 {
		t.Errorf("%d connections are counted that should be closed, want 2\n%s", n, v.CLI("show session verbose"))
	}
}

// TestVPPConnectionsAreKept is about who wants open connections to live.
func TestVPPConnectionsAreKept(t *testing.T) {
	v, r := talking(t, rules.Options{Keep: true})
	for range 2 {
		tell(t, r, []api.ContivRule{denyRest}, []api.ContivRule{denyRest})
	}
	if !areOpen(v, "10.0.0.1") || r.State().Forbidden != 0 {
		t.Errorf("an open connection is closed\n%s", v.CLI("show session verbose"))
	}
}

// TestVPPCutThroughConnectionsAreClosed has client and server on one routing table, so that
// they exchange data through shared memory. The client never gets the request to close; the server
// does.
func TestVPPCutThroughConnectionsAreClosed(t *testing.T) {
	v, run := vclStack(t, oneRouter)
	r := openRules(t, rules.Options{Socket: v.Socket()})
	tell(t, r, nil, nil)
	run(serverPod, "vcl_test_server", fmt.Sprint(vclPort))
	vpptest.Eventually(t, "the server to listen", func() bool { return sessions(v, "10.0.0.1", "LISTEN") > 0 })
	run(clientPod, "vcl_test_client", "-U", "-X", "-N", "2000000000", "-T", "2048", "10.0.0.1", fmt.Sprint(vclPort))
	const both = 2 // that of control and that of data
	open := func() int { return sessions(v, "10.0.0.1", "ESTABLISHED") }
	vpptest.Eventually(t, "the client to send", func() bool { return open() == both })
	if all := v.CLI("show session thread 0 lcl 0.0.0.0 verbose 1 force-print"); strings.Count(all, "[CT:T] 0.0.0.0:0->10.0.0.1:") != both {
		t.Fatalf("they do not cut through:\n%s", all)
	}
	permitted := api.ContivRule{Action: api.Permit, Dst: api.AddrNet(serverIPs[0]), Protocol: api.TCP, DstPort: api.Ports(vclPort, vclPort+1)}
	tell(t, r, []api.ContivRule{permitted, denyRest}, nil)
	if open() != both || r.State().Forbidden != 0 {
		t.Fatalf("a connection that is permitted is closed, or counted: %d\n%s", r.State().Forbidden, v.CLI("show session verbose"))
	}
	tell(t, r, []api.ContivRule{denyRest}, nil)
	if n := r.State().Forbidden; n != both {
		t.Errorf("%d connections are counted, want %d\n%s", n, both, v.CLI("show session verbose"))
	}
	vpptest.Eventually(t, "the server to close", func() bool { return open() == 0 })
	vpptest.Eventually(t, "nothing to be counted", func() bool {
		tell(t, r, []api.ContivRule{denyRest}, nil)
		return r.State().Forbidden == 0
	})
}

// guideBlock returns the block of the guide that begins with some text, with a folder for VPP's
// own.
func guideBlock(t *testing.T, begins, dir string) string {
	t.Helper()
	guide, err := os.ReadFile("../../../docs/guide/vpp.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, found := strings.Cut(string(guide), "```\n"+begins)
	block, _, closed := strings.Cut(block, "```")
	if !found || !closed {
		t.Fatalf("the guide has no block that begins with %q", begins)
	}
	return strings.ReplaceAll(begins+block, "/run/vpp/", dir+"/")
}

// TestVPPGuideGivesPodHostStack does what the guide says, and runs VPP's test server.
func TestVPPGuideGivesPodHostStack(t *testing.T) {
	server := filepath.Join(filepath.Dir(vpptest.Binary(t)), "vcl_test_server")
	if _, err := os.Stat(server); err != nil {
		t.Skip("vcl_test_server is not beside the vpp binary")
	}
	dir := t.TempDir()
	v := vpptest.LaunchWith(t, guideBlock(t, "session {", dir))
	v.CLI("create loopback interface")
	v.Do("set interface state loop0 up")
	v.Do("set interface ip address loop0 10.0.0.1/24")
	v.Do("%s", strings.TrimSpace(guideBlock(t, "app ns add ", dir)))
	r := openRules(t, rules.Options{Socket: v.Socket()})
	web := api.PodID{Namespace: "shop", Name: "web"}
	changes := renderer.Changes{Resync: true}
	changes.Render(web, renderer.PodConfig{IPs: serverIPs[:1]})
	if err := r.Apply(t.Context(), changes); err != nil || !r.Serves(web) {
		t.Fatalf("the namespace is not found: %v\n%s", err, v.CLI("show app ns"))
	}
	config := filepath.Join(dir, "vcl.conf")
	if err := os.WriteFile(config, []byte(guideBlock(t, "vcl {", dir)), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, config, server, fmt.Sprint(vclPort))
	vpptest.Eventually(t, "the server to listen", func() bool { return sessions(v, "10.0.0.1", "LISTEN") == 2 })
}

// start runs a program of VCL until the test ends.
func start(t *testing.T, config, program string, args ...string) {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "VCL_CONFIG="+config)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // it was killed
	})
}
