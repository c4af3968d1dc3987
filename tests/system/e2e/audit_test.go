package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/tests/lab/wires"
)

// audits asks the agent what policies in audit mode would deny, by policy and workload.
func (n *kernelNode) audits() map[string]view.Audited {
	n.T.Helper()
	out, code := n.agent.ctl("get", "audit", "-o", "json")
	var rows []view.Audited
	if err := json.Unmarshal([]byte(out), &rows); err != nil || code != 0 {
		n.T.Fatal(code, err, out)
	}
	found := map[string]view.Audited{}
	for _, r := range rows {
		found[fmt.Sprintf("%s %s %s", r.Policy.Short(), r.Direction, strings.Join(r.Workloads, ","))] = r
	}
	return found
}

// TestAuditModeInTheKernel: what a policy in audit mode would deny passes, is counted, and named by
// policy and workload. One apply enforces it.
func TestAuditModeInTheKernel(t *testing.T) {
	n := newKernelNode(t, "auto")
	store(t, n.etcd, strings.Replace(wires.Demo, "metadata: {name: server, namespace: demo}", `metadata: {name: server, namespace: demo, annotations: {sluice.io/mode: audit}}`, 1))
	n.more = []string{"--log-verdicts", "deny"}
	n.run()
	watch := startProgram(t, "sluicectl", "watch", "verdicts", "--action", "audit", "--socket", n.agent.socket)
	watch.Line("^TIME ")
	for _, family := range []int{4, 6} {
		n.Can(true, "the friend", "friend", "server", "tcp", family, 80)
		n.Can(true, "the stranger, audited", "stranger", "server", "tcp", family, 80)
		n.Can(true, "the server as a client, audited", "server", "friend", "tcp", family, 80)
	}
	const ingress, egress = "demo/server ingress demo/server", "demo/server egress demo/server"
	rows := n.audits()
	for _, key := range []string{ingress, egress} {
		r := rows[key]
		if r.Rule != api.IsolationRule || r.Packets == nil || *r.Packets == 0 || r.Total == nil || *r.Total < *r.Packets || len(r.Pods) != 1 {
			t.Errorf("%s: the row is %+v of %v", key, r, rows)
		}
	}
	if len(rows) != 2 {
		t.Errorf("the rows are %v", rows)
	}
	watch.Line(`permit +ingress +demo/stranger:\d+ -> demo/server:80 tcp +NetworkPolicy demo/server isolates ingress, in audit mode`)
	n.agent.Line(`msg=verdict action=audit packets=\d+ rule="NetworkPolicy demo/server isolates ingress, in audit mode"`)
	if out := watch.Output(); regexp.MustCompile(`demo/friend:\d+ -> demo/server`).MatchString(out) {
		t.Errorf("what is allowed is reported as audited:\n%s", out)
	}
	if out, code := n.agent.ctl("explain", "demo/stranger", "demo/server:80/tcp"); code != 0 || !strings.Contains(out, "would be denied") {
		t.Errorf("explain says %d: %s", code, out)
	}
	if out, _ := n.agent.ctl("get", "policy", "demo/server"); !strings.Contains(out, "audit") {
		t.Errorf("get policy says %s", out)
	}
	talk := n.Open("stranger", "server", 4, 80)
	talk.GoesOn("in audit mode")

	store(t, n.etcd, wires.Demo)
	eventually(t, func() error {
		if n.answers("stranger", "server") == nil {
			return errors.New("the policy is not enforced")
		}
		return nil
	})
	talk.IsCut("after the switch to enforce")
	n.TryDemo()
	if rows := n.audits(); len(rows) != 0 {
		t.Errorf("after the switch the rows are %v", rows)
	}
	n.cleanUp()
}
