package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/kvstore"
)

// hostileEntries are keys and values that a client with write access to etcd may choose.
func hostileEntries(t *testing.T) []model.Entry {
	t.Helper()
	root := model.Root(model.DefaultPrefix)
	policy, err := model.Encode(&model.NetworkPolicy{Namespace: "demo", Name: "evil"})
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 900<<10)
	var out []model.Entry
	for _, key := range []string{
		"networkpolicy/../demo/server", "networkpolicy/demo/../server", "networkpolicy/demo/server/", "networkpolicy//server", "networkpolicy/demo/", "networkpolicy/demo/ser\x00ver",
		"networkpolicy/demo/a\nlevel=ERROR msg=forged", "networkpolicy/demo/\x1b[2J\u009b", "networkpolicy/demo/s\u0435rver", "networkpolicy/demo/\xff\xfe", "networkpolicy/demo/" + long[:1<<10],
		"networkpolicy/" + long + "/server", "secret/demo/server", "NetworkPolicy/demo/server", "networkpolicy/_/server", "namespace/demo/demo", "pod", "", "_complete/x",
	} {
		out = append(out, model.Entry{Key: root + key, Value: policy})
	}
	for i, value := range [][]byte{{}, {0}, {0xff}, []byte("{}"), policy, policy[:len(policy)-1], bytes.Repeat([]byte{0x0a}, 1<<16), []byte(long), bytes.Repeat([]byte{0x0b}, 1<<16)} {
		for _, kind := range []string{"pod", "networkpolicy", "namespace", "node", "clusternetworkpolicy"} {
			scope := "demo"
			if kind != "pod" && kind != "networkpolicy" {
				scope = "_"
			}
			out = append(out, model.Entry{Key: fmt.Sprintf("%s%s/%s/evil-%d", root, kind, scope, i), Value: value})
		}
		out = append(out, model.Entry{Key: fmt.Sprintf("%snetworkpolicy/demo/server", root), Value: value}, // in place of what is in force
			model.Entry{Key: model.StatusRoot(model.DefaultPrefix) + fmt.Sprintf("evil-%d\x1b", i), Value: value},
			model.Entry{Key: model.VswitchRoot(model.DefaultPrefix) + fmt.Sprintf("node-1/interface/demo/%d\n", i), Value: value},
			model.Entry{Key: model.LeaderKey(model.DefaultPrefix, "ksr"), Value: value})
	}
	return out
}

// TestStatePathSurvivesHostileEntries writes keys and values to etcd that no program of Sluice
// writes. They change no verdict; a policy whose value becomes invalid stays in force; output and
// logs are escaped; and valid changes are still enforced.
func TestStatePathSurvivesHostileEntries(t *testing.T) {
	t.Parallel()
	v, etcd, a := startDemo(t)
	client, err := kvstore.Dial(t.Context(), kvstore.Config{Endpoints: []string{etcd}, CallTimeout: patience}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	for _, e := range hostileEntries(t) {
		if err := client.Write(t.Context(), []model.Entry{e}, nil); err != nil {
			t.Fatalf("%.100q: %v", e.Key, err)
		}
		if err := v.demoEnforced(); err != nil {
			t.Fatalf("with %.100q = %.20q: %v", e.Key, e.Value, err)
		}
	}
	last, err := model.Encode(&model.Pod{Namespace: "demo", Name: "last", NodeName: "node-9", Ips: []string{"10.2.9.9"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Write(t.Context(), []model.Entry{{Key: model.Root(model.DefaultPrefix) + "pod/demo/last", Value: last}}, nil); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error { // all of them were read
		if _, body, err := ask(a.socket, "/v1/pods?namespace=demo&name=last"); err != nil || !strings.Contains(string(body), "10.2.9.9") {
			return fmt.Errorf("%s %w", body, err)
		}
		return nil
	})
	if err := v.demoEnforced(); err != nil {
		t.Error(err)
	}
	store(t, etcd, strings.ReplaceAll(demo, "port: http", "port: 81"))
	eventually(t, func() error {
		if !v.permits(friend, server, 81) || v.permits(friend, server, 80) || v.permits(stranger, server, 81) {
			return errors.New("a good change is not enforced")
		}
		return nil
	})
	for _, args := range [][]string{{"get", "status"}, {"get", "nodes"}, {"get", "pods"}, {"get", "policies"}, {"explain", "demo/friend", "demo/server:81/tcp"}} {
		out, code := a.ctl(args...)
		if i := strings.IndexFunc(out, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 || code > 1 || len(out) > 1<<20 {
			t.Errorf("%q has exit code %d and writes %d bytes: %.300q", args, code, len(out), out[max(i, 0):])
		}
	}
	for line := range strings.Lines(a.Output()) {
		if !strings.HasPrefix(line, "time=") || len(line) > 8<<10 || strings.IndexFunc(strings.TrimSuffix(line, "\n"), func(r rune) bool { return !unicode.IsPrint(r) }) >= 0 {
			t.Errorf("the log has a line %.300q", line)
		}
	}
}

// TestStatePathSurvivesHostileRequests sends invalid, huge and slow requests to the local socket
// and over TCP. They must not harm other clients.
func TestStatePathSurvivesHostileRequests(t *testing.T) {
	t.Parallel()
	shop := t.TempDir()
	if err := copyShop(shop); err != nil {
		t.Fatal(err)
	}
	a := startAgent(t, "dev", "--manifests", shop, "--metrics-address", "127.0.0.1:0", "--log-level", "info")
	address := a.Line(`msg="metrics and health are served" address=(\S+)`)[1]
	a.ready()
	huge := strings.Repeat("x", 1<<20)
	slow := 0
	for network, at := range map[string]string{"unix": a.socket, "tcp": address} {
		for _, text := range []string{
			"", "\x00\xff\x16\x03\x01", "GET / HTTP/9.9\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "GET /v1/../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n",
			"GET /debug/pprof/../../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n", "GET /v1/pods?name=%00%1b HTTP/1.1\r\nHost: x\r\n\r\n", "GET /" + huge + " HTTP/1.1\r\nHost: x\r\n\r\n",
			"GET /readyz HTTP/1.1\r\nHost: x\r\nX: " + huge + "\r\n\r\n", "POST /v1/explain HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
			"POST /v1/explain HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n", "POST /v1/explain HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n{\"src\":\"" + huge,
			"POST /v1/change HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{\"put\":[", "CONNECT / HTTP/1.1\r\nHost: x\r\n\r\n",
		} {
			for range 8 {
				c, err := net.Dial(network, at)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = c.Close() }() // maybe closed by the agent
				_ = c.SetWriteDeadline(time.Now().Add(patience))
				_, _ = io.WriteString(c, text) // which may be cut
				slow++
			}
		}
	}
	for range 3 {
		if status, _, err := ask(a.socket, "/v1/status"); status != http.StatusOK || err != nil {
			t.Errorf("with %d bad requests the status is %d, %v", slow, status, err)
		}
		resp, err := http.Get("http://" + address + "/livez")
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("/livez is %d, %v", resp.StatusCode, err)
		}
	}
	if out, code := a.ctl("get", "status"); code != 0 || strings.Contains(a.Output(), "panic") {
		t.Errorf("exit code %d: %s\n%s", code, out, a.Output())
	}
}

// TestStatePathRefusesTamperedFile: a state file that was cut or changed anywhere opens nothing
// when the agent starts without etcd; pods stay blocked until the store answers.
func TestStatePathRefusesTamperedFile(t *testing.T) {
	t.Parallel()
	socket, file := filepath.Join(socketDir(t), "vpp.sock"), filepath.Join(t.TempDir(), "state")
	v := startVPP(t, socket)
	v.attachDemo()
	etcd, door := startEtcd(t), newGate(t)
	door.open(etcd)
	store(t, etcd, demo)
	run := func() *process {
		return startAgent(t, "run", "--node", "node-1", "--etcd-endpoints", door.addr, "--vpp-socket", socket, "--state-file", file)
	}
	a := run()
	a.ready()
	a.stop(syscall.SIGTERM)
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	door.shut()
	flipped := slices.Clone(good)
	flipped[len(flipped)/2] ^= 1
	for name, text := range map[string][]byte{
		"cut": good[:len(good)/2], "empty": {}, "one bit": flipped, "without its sum": good[:len(good)-32], "twice": slices.Concat(good, good), "nonsense": []byte(strings.Repeat("\x1b[2J\n", 1000)),
	} {
		v.stop()
		v = startVPP(t, socket)
		v.attachDemo()
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		a := run()
		a.Line(`level=WARN msg="saved state cannot be used"`)
		for range 20 {
			if v.permits(friend, server, 80) || v.permits(stranger, server, 80) {
				t.Fatalf("a state file that is %s opens pods", name)
			}
		}
		a.stop(syscall.SIGTERM)
	}
	v.stop()
	v = startVPP(t, socket)
	v.attachDemo()
	a = run()
	door.open(etcd)
	a.ready()
	if err := v.demoEnforced(); err != nil {
		t.Error(err)
	}
}

// TestStatePathSurvivesFullDisk checks that an agent that cannot save its state still enforces it,
// logs the error once, and keeps the last good file.
func TestStatePathSurvivesFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a small disk")
	}
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=16k,mode=700"); err != nil {
		t.Skipf("no disk can be mounted: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(disk, unix.MNT_DETACH) })
	v := startVPP(t, filepath.Join(socketDir(t), "vpp.sock"))
	v.attachDemo()
	etcd := startEtcd(t)
	store(t, etcd, demo)
	if err := os.WriteFile(filepath.Join(disk, "full"), make([]byte, 16<<10), 0o600); err == nil || !errors.Is(err, syscall.ENOSPC) {
		t.Logf("the disk is not full: %v", err)
	}
	a := startAgent(t, "run", "--node", "node-1", "--etcd-endpoints", etcd, "--vpp-socket", v.socket, "--state-file", filepath.Join(disk, "state"))
	a.ready()
	if err := v.demoEnforced(); err != nil {
		t.Error(err)
	}
	a.stop(syscall.SIGTERM)
	if out := a.Output(); !strings.Contains(out, "state could not be saved for a start without the store") || !strings.Contains(out, "no space left on device") {
		t.Errorf("nothing says that the disk is full:\n%s", out)
	}
	if left, err := filepath.Glob(filepath.Join(disk, "state*")); err != nil || len(left) > 0 {
		t.Errorf("files are left: %v, %v", left, err)
	}
}
