package cli

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/tests/lab/programs"
)

const followed = `
{apiVersion: v1, kind: Namespace, metadata: {name: a}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: a, labels: {app: web}}, spec: {nodeName: node-1}, status: {phase: Running, podIPs: [{ip: 10.0.0.1}]}}
`

// following runs get --watch on an agent, and returns what it has printed and what ends it.
func following(t *testing.T, socket string, args ...string) (printed func() string, end func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var out programs.Buffer
	cmd := NewCommand(strings.NewReader(""), &out, io.Discard)
	cmd.SetArgs(append(args, "--socket", socket))
	done := make(chan error, 1)
	go func() {
		err := cmd.ExecuteContext(ctx)
		if err != nil {
			_, _ = io.WriteString(&out, err.Error()) // so the test fails: it waits for another text
		}
		done <- err
	}()
	return out.String, func() int {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
			return ExitError
		}
		return ExitOK
	}
}

// await polls for a text.
func await(t *testing.T, printed func() string, want string) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !strings.Contains(printed(), want); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("printed\n%s\nwant %q", printed(), want)
		}
	}
}

// TestGetWatchPrintsChanges: pods that come, change and go, as manifests are edited.
func TestGetWatchPrintsChanges(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(followed)
	l, err := start(dir)
	if err != nil {
		t.Fatal(err)
	}
	table, endTable := following(t, l.socket, "get", "pods", "-w")
	names, endNames := following(t, l.socket, "get", "pods", "-w", "-o", "name")
	events, endEvents := following(t, l.socket, "get", "pods", "-w", "--output-watch-events", "-o", "jsonpath={.type} {.object.pod}\n")
	for _, printed := range []func() string{table, names, events} {
		await(t, printed, "a/web")
	}
	write(followed + "---\n" + `{apiVersion: v1, kind: Pod, metadata: {name: database-0, namespace: a, labels: {app: database}}, spec: {nodeName: node-1}, status: {phase: Running, podIPs: [{ip: 10.0.0.2}]}}`)
	for _, printed := range []func() string{table, names, events} {
		await(t, printed, "a/database-0")
	}
	write(strings.Replace(followed, "app: web", "app: shop", 1))
	await(t, table, `pods "a/database-0" deleted`)
	await(t, events, "DELETED a/database-0")
	await(t, table, "app=shop")
	for _, end := range []func() int{endTable, endNames, endEvents} {
		if code := end(); code != ExitOK {
			t.Errorf("exit code %d", code)
		}
	}
	lines := strings.Split(table(), "\n")
	if d := cmp.Diff([]string{"POD    NODE    ADDRESSES  STATE     ISOLATED  POLICIES  LABELS", "a/web  node-1  10.0.0.1   enforced  -         -         app=web"}, lines[:2]); d != "" {
		t.Errorf("the table begins (-want +got):\n%s", d)
	}
	if strings.Count(table(), "NODE") != 1 {
		t.Errorf("the table has several headings:\n%s", table())
	}
}

// TestGetWatchPrintsHeadersOfNewColumns later, as the tier of the first admin policy, and prints
// what is named twice once.
func TestGetWatchPrintsHeadersOfNewColumns(t *testing.T) {
	var out bytes.Buffer
	r := &getRun{options: &options{output: formatTable, out: &out}}
	f := follower[view.Policy]{listing: policyList, run: r}
	np := view.Policy{Policy: api.PolicyID{Namespace: "shop", Name: "web"}, Tier: "NetworkPolicy", Selector: "app=web", Enforced: view.EnforcedFully}
	admin := view.Policy{Policy: api.PolicyID{Kind: api.AdminNetworkPolicy, Name: "guard"}, Tier: "admin", Priority: new(int), Enforced: view.EnforcedFully}
	for _, items := range [][]view.Policy{{np, np}, {np, np, admin}, {admin}} {
		if err := f.print(f.changes(items)); err != nil {
			t.Fatal(err)
		}
	}
	want := `POLICY    SELECTS  ISOLATES  RULES  LOCAL PODS  ENFORCED
shop/web  app=web  -         0      0           yes
POLICY                    TIER     SELECTS  ISOLATES  RULES  LOCAL PODS  ENFORCED
AdminNetworkPolicy guard  admin 0           -         0      0           yes
policies "shop/web" deleted
`
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestGetWatchRefusesMissingObject, as kubectl does not.
func TestGetWatchRefusesMissingObject(t *testing.T) {
	socket := agent(t, map[string]http.HandlerFunc{"GET /v1/pods": says([]view.Pod{})})
	if code, out, errOut := sluicectl(socket, "", "get", "pod", "shop/nosuch", "-w"); code != ExitDenied || out != "" || errOut != "Error: pods \"shop/nosuch\" not found\n" {
		t.Errorf("exit code %d, %q, %q", code, out, errOut)
	}
}

// TestGetWatchEndsWithAgent and says so.
func TestGetWatchEndsWithAgent(t *testing.T) {
	socket := agent(t, nil)
	if code, _, errOut := sluicectl(socket, "", "get", "pods", "-w"); code != ExitError || !strings.Contains(errOut, "404") {
		t.Errorf("exit code %d, %q", code, errOut)
	}
}
