package agent

import (
	"bytes"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-net/sluice/internal/agent/config"
	"github.com/sluice-net/sluice/plugins/policy"
	"github.com/sluice-net/sluice/tests/lab/programs"
)

// logLines returns what a log says of a message, without times and levels.
func logLines(text, message string) (out []string) {
	for line := range strings.Lines(text) {
		if _, rest, ok := strings.Cut(strings.TrimSpace(line), "msg="+quoted(message)+" "); ok {
			out = append(out, rest)
		}
	}
	return out
}

// quoted is how a text handler of slog writes a message.
func quoted(message string) string {
	if strings.Contains(message, " ") {
		return strconv.Quote(message)
	}
	return message
}

func TestEnforcementLogReportsTransitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		e := enforcementLog{log: slog.New(slog.NewTextHandler(&text, nil)), tables: func() map[string]int { return map[string]int{"acl": 1} }}
		status := func(policies, pods int, problem string) policy.Status {
			return policy.Status{Synced: true, Revision: 7, Policies: policies, Pods: pods, Renderers: []policy.RendererStatus{
				{Name: "acl", InSync: problem == "", Error: problem}, {Name: "session", InSync: true},
			}}
		}
		const dataplanes = ` dataplanes="acl: 1 table, session" revision=7`
		for _, step := range []struct {
			what   string
			pause  time.Duration
			status policy.Status
			wait   time.Duration
			want   string
		}{
			{"nothing was received", 0, policy.Status{}, 0, ""},
			{"the first state fails", 0, policy.Status{Renderers: status(0, 0, "no VPP").Renderers}, 0, ""},
			{"an empty state", 0, status(0, 0, ""), 0, "policies=0 pods=0" + dataplanes},
			{"the first policy", time.Second, status(1, 2, ""), 0, "policies=1 pods=2" + dataplanes},
			{"nothing is different", time.Second, status(1, 2, ""), 0, ""},
			{"another policy, soon", 20 * time.Second, status(2, 3, ""), 39 * time.Second, ""},
			{"the time is over", 39 * time.Second, status(2, 3, ""), 0, "policies=2 pods=3" + dataplanes},
			{"a renderer fails", time.Second, status(2, 3, "no VPP"), 0, ""},
			{"it still does", time.Hour, status(3, 3, "no VPP"), 0, ""},
			{"it has recovered", time.Second, status(3, 3, ""), 0, "policies=3 pods=3" + dataplanes},
		} {
			<-time.After(step.pause)
			text.Reset()
			wait := e.see(step.status, time.Now())
			if got := strings.Join(logLines(text.String(), "enforcing policies"), "|"); got != step.want || wait != step.wait {
				t.Errorf("%s: %q and wait %s, want %q and %s", step.what, got, wait, step.want, step.wait)
			}
		}
		partly := status(3, 3, "")
		partly.Unenforced = 1
		<-time.After(time.Minute)
		if e.see(partly, time.Now()); !strings.Contains(text.String(), "partially_enforced=1") {
			t.Errorf("a policy is not enforced in full: %s", &text)
		}
	})
}

// awaitLine waits for a line with a message in a log.
func awaitLine(t *testing.T, log *programs.Buffer, message string) (last string) {
	t.Helper()
	programs.Eventually(t, func() error {
		lines := logLines(log.String(), message)
		if len(lines) == 0 {
			return fmt.Errorf("no line %q:\n%s", message, log)
		}
		last = lines[len(lines)-1]
		return nil
	})
	return last
}

func TestAgentLogsRenderersAndUnknownNode(t *testing.T) {
	var log programs.Buffer
	a := prepared(t, func(c *config.Config) { c.Node.Name = "node-11" })
	a.log = slog.New(slog.NewTextHandler(&log, nil))
	a.reflect(t, twoNodes)
	a.run(t)
	if got, want := awaitLine(t, &log, "enforcing policies"), `policies=0 pods=0 dataplanes="acl: 0 tables"`; !strings.HasPrefix(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	got := awaitLine(t, &log, "no Pod or Node object names this node")
	if want := `node=node-11 remedy="did you mean --node node-1?"`; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestNamedNodeAsksUntilNodeIsKnown(t *testing.T) {
	for _, tc := range []struct {
		node   string
		status policy.Status
		again  bool
	}{
		{"node-1", policy.Status{}, true},                         // there is no state yet
		{"node-11", policy.Status{Synced: true, Local: 1}, false}, // pods of it are here
		{"node-1", policy.Status{Synced: true}, false},            // it has an object
		{"node-2", policy.Status{Synced: true}, false},            // pods name it, without addresses
	} {
		var log bytes.Buffer
		a := prepared(t, func(c *config.Config) { c.Node.Name = tc.node })
		a.log = slog.New(slog.NewTextHandler(&log, nil))
		a.reflect(t, twoNodes)
		n := namedNode{ask: true}
		n.see(t.Context(), tc.status, a)
		if n.ask != tc.again || log.Len() > 0 {
			t.Errorf("%s, %+v: asks again %t, want %t, and logs %q", tc.node, tc.status, n.ask, tc.again, &log)
		}
		if err := a.node.Close(); err != nil {
			t.Error(err)
		}
	}
}
