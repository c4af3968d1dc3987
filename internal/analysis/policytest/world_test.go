package policytest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/ksr/kinds"
	"github.com/sluice-net/sluice/tests/lab/cluster"
)

// miniature is a small cluster with one pod of every sort, and a policy.
const miniature = `
externals:
  internet: 198.51.100.7
  web: 10.0.0.1
  dual: [198.51.100.8, "2001:db8::8"]
  half-pod: [198.51.100.9, 10.0.0.2]
objects:
  - {apiVersion: v1, kind: Namespace, metadata: {name: shop}}
  - apiVersion: v1
    kind: Pod
    metadata: {name: web-0, namespace: shop, labels: {app: web, app.kubernetes.io/name: web}}
    spec: {containers: [{name: c, ports: [{name: http, containerPort: 8080}, {name: dns, containerPort: 53, protocol: UDP}, {containerPort: 9}]}]}
    status: {phase: Running, podIP: 10.0.0.1, podIPs: [{ip: 10.0.0.1}, {ip: "fd00::1"}]}
  - apiVersion: v1
    kind: Pod
    metadata: {name: db-0, namespace: shop, labels: {app: db}}
    spec:
      containers: [{name: c, ports: [{name: sql, containerPort: 5432}]}]
      initContainers:
        - {name: sidecar, restartPolicy: Always, ports: [{name: http, containerPort: 81}]}
        - {name: setup, ports: [{name: setup, containerPort: 82}]}
    status: {phase: Running, podIP: 10.0.0.2}
  - apiVersion: v1
    kind: Pod
    metadata: {name: new-0, namespace: shop, labels: {app: new}}
    spec: {containers: [{name: c}]}
    status: {phase: Pending}
  - apiVersion: v1
    kind: Pod
    metadata: {name: done-0, namespace: shop, labels: {app: job}}
    spec: {containers: [{name: c}]}
    status: {phase: Succeeded, podIP: 10.0.0.3}
  - apiVersion: v1
    kind: Pod
    metadata: {name: agent-0, namespace: infra, labels: {app: agent}}
    spec: {hostNetwork: true, containers: [{name: c, ports: [{name: http, containerPort: 80, hostPort: 80}]}]}
    status: {phase: Running, podIP: 192.168.0.1, hostIP: 192.168.0.1}
  - apiVersion: v1
    kind: Pod
    metadata: {name: six-0, namespace: infra, labels: {app: six, tier: back}}
    spec: {containers: [{name: c}]}
    status: {phase: Running, podIP: "fd00::6"}
  - apiVersion: networking.k8s.io/v1
    kind: NetworkPolicy
    metadata: {name: db, namespace: shop}
    spec:
      podSelector: {matchLabels: {app: db}}
      ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: sql}]}]
probes:
  - {from: shop/web-0, to: shop/db-0, port: sql, expect: allow}
`

// miniWorld returns the world after the objects of miniature.
func miniWorld(t *testing.T) (*world, *File) {
	t.Helper()
	f := parseOne(t, header+miniature)
	m, err := f.manifests(f.Start)
	if err != nil || len(m.problems) > 0 {
		t.Fatal(err, m.problems)
	}
	w := newWorld()
	w.apply(m.objects, nil)
	return w, f
}

func TestEndpointExpressionsResolve(t *testing.T) {
	w, f := miniWorld(t)
	for text, want := range map[string]string{
		"shop/web-0":                      "shop/web-0=shop/web-0@10.0.0.1,fd00::1",
		"shop/*":                          "shop/db-0=shop/db-0@10.0.0.2 shop/web-0=shop/web-0@10.0.0.1,fd00::1",
		"infra/*":                         "infra/six-0=infra/six-0@fd00::6",
		"*/*":                             "infra/six-0=infra/six-0@fd00::6 shop/db-0=shop/db-0@10.0.0.2 shop/web-0=shop/web-0@10.0.0.1,fd00::1",
		"*/web-0":                         "shop/web-0=shop/web-0@10.0.0.1,fd00::1",
		"app=db":                          "shop/db-0=shop/db-0@10.0.0.2",
		" app=db ":                        "shop/db-0=shop/db-0@10.0.0.2",
		"shop/app in (db, six)":           "shop/db-0=shop/db-0@10.0.0.2",
		"app in (db, six)":                "infra/six-0=infra/six-0@fd00::6 shop/db-0=shop/db-0@10.0.0.2",
		"*/app!=web":                      "infra/six-0=infra/six-0@fd00::6 shop/db-0=shop/db-0@10.0.0.2",
		"shop/!tier, app notin (web)":     "shop/db-0=shop/db-0@10.0.0.2",
		"tier,app":                        "infra/six-0=infra/six-0@fd00::6",
		"app.kubernetes.io/name=web":      "shop/web-0=shop/web-0@10.0.0.1,fd00::1",
		"shop/app.kubernetes.io/name=web": "shop/web-0=shop/web-0@10.0.0.1,fd00::1",
		"10.0.0.1":                        "10.0.0.1=shop/web-0@10.0.0.1",
		"fd00::1":                         "fd00::1=shop/web-0@fd00::1",
		"::ffff:10.0.0.1":                 "::ffff:10.0.0.1=shop/web-0@10.0.0.1",
		"10.0.0.3":                        "10.0.0.3=@10.0.0.3", // the pod gave it back
		"192.168.0.1":                     "192.168.0.1=@192.168.0.1",
		"infra/agent-0":                   "infra/agent-0=@192.168.0.1", // it is its node
		"internet":                        "internet=@198.51.100.7",
		"web":                             "web=shop/web-0@10.0.0.1",
		"dual":                            "dual=@198.51.100.8,2001:db8::8",
		"half-pod":                        "half-pod=shop/db-0@10.0.0.2 half-pod=@198.51.100.9",

		"shop/nobody":          "error: there is no pod shop/nobody",
		"nowhere/web-0":        "error: there is no pod nowhere/web-0",
		"shop/new-0":           "error: pod shop/new-0 has no address yet",
		"shop/done-0":          "error: pod shop/done-0 has finished and has no address any more",
		"*/nobody":             `error: "*/nobody" selects no pod`,
		"shop/app=six":         `error: "shop/app=six" selects no pod`,
		"nowhere/*":            `error: "nowhere/*" selects no pod`,
		"app=new":              `error: "app=new" selects no live pod: what it selects has no address, has finished, or is in the host network (name that by namespace/pod)`,
		"infra/app in (agent)": `error: "infra/app in (agent)" selects no live pod: what it selects has no address, has finished, or is in the host network (name that by namespace/pod)`,
	} {
		t.Run(text, func(t *testing.T) {
			e, err := parseExpr(text, f.Externals)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // the second answer may be a remembered one
				if got := describeParties(w.resolve(e)); got != want {
					t.Errorf("resolves to\n%s, want\n%s", got, want)
				}
			}
		})
	}
}

// describeParties writes parties as "name=pod@addresses".
func describeParties(parties []party, err error) string {
	if err != nil {
		return "error: " + err.Error()
	}
	var out []string
	for _, p := range parties {
		id := ""
		if p.pod != nil {
			id = p.pod.id.String()
		}
		var addrs []string
		for _, a := range p.addrs {
			addrs = append(addrs, a.String())
		}
		out = append(out, fmt.Sprintf("%s=%s@%s", p.name, id, strings.Join(addrs, ",")))
	}
	return strings.Join(out, " ")
}

func TestEndpointAddressOfTwoPodsIsBoth(t *testing.T) {
	w, _ := miniWorld(t)
	twin := w.objects[model.ID{Kind: model.KindPod, Namespace: "shop", Name: "db-0"}].Object.(*corev1.Pod).DeepCopy()
	twin.Name = "a-twin"
	w.apply([]kinds.Object{{Object: twin}}, nil)
	e, _ := parseExpr("10.0.0.2", nil)
	if got, want := describeParties(w.resolve(e)), "10.0.0.2=shop/a-twin@10.0.0.2 10.0.0.2=shop/db-0@10.0.0.2"; got != want {
		t.Errorf("resolves to %s, want %s", got, want)
	}
}

func TestPortNamesResolveAtDestination(t *testing.T) {
	w, f := miniWorld(t)
	for _, tc := range []struct {
		end  string
		port Port
		want string
	}{
		{"shop/web-0", Port{Name: "http", Protocol: api.TCP}, "8080"},
		{"shop/web-0", Port{Name: "dns", Protocol: api.UDP}, "53"},
		{"shop/web-0", Port{Number: 7, Protocol: api.UDP}, "7"},
		{"shop/db-0", Port{Name: "http", Protocol: api.TCP}, "81"}, // of a sidecar
		{"internet", Port{Number: 7, Protocol: api.UDP}, "7"},
		{"shop/db-0", Port{Name: "setup", Protocol: api.TCP}, "pod shop/db-0 has no TCP port with the name setup"},
		{"shop/web-0", Port{Name: "http", Protocol: api.UDP}, "pod shop/web-0 has no UDP port with the name http"},
		{"internet", Port{Name: "http", Protocol: api.TCP}, "internet is not a pod that policies see: its named port http cannot be resolved"},
		{"infra/agent-0", Port{Name: "http", Protocol: api.SCTP}, "infra/agent-0 is not a pod that policies see: its named port http cannot be resolved"},
	} {
		e, err := parseExpr(tc.end, f.Externals)
		if err != nil {
			t.Fatal(err)
		}
		parties, err := w.resolve(e)
		if err != nil {
			t.Fatal(err)
		}
		numbers, err := parties[0].numbers(tc.port)
		got := fmt.Sprint(err)
		if err == nil {
			got = fmt.Sprint(numbers[0].Number)
		}
		if got != tc.want {
			t.Errorf("%+v of %s is %s, want %s", tc.port, tc.end, got, tc.want)
		}
	}
}

// recorder is a Subject that keeps what it receives, and answers by a function.
type recorder struct {
	name    string
	held    map[model.ID]kinds.Object
	batches []string // "+Pod shop/web-0 -Namespace x"
	answer  func(Question) bool
	asked   []Question
	fail    error // of Apply
	failAsk error
}

func newRecorder(name string, answer func(Question) bool) *recorder {
	return &recorder{name: name, held: map[model.ID]kinds.Object{}, answer: answer}
}

func (r *recorder) Name() string { return r.name }

func (r *recorder) Apply(_ context.Context, upserts []kinds.Object, deletes []model.ID) error {
	var words []string
	for _, o := range upserts {
		words = append(words, "+"+o.ID().String())
		r.held[o.ID()] = o
	}
	for _, id := range deletes {
		words = append(words, "-"+id.String())
		delete(r.held, id)
	}
	r.batches = append(r.batches, strings.Join(words, " "))
	return r.fail
}

func (r *recorder) Ask(_ context.Context, q Question) (Answer, error) {
	r.asked = append(r.asked, q)
	return Answer{Allowed: r.answer(q), Why: "because " + r.name + " says so"}, r.failAsk
}

func (r *recorder) Close() error { return nil }

func objectsOf(s cluster.State) []kinds.Object {
	var out []kinds.Object
	for _, o := range slices.Backward(cluster.Objects(s)) { // policies first
		out = append(out, kinds.Object{Object: o.Object})
	}
	return out
}

// TestChangesLeadToNextState says that the differences that a world returns
// make of an old state the new one, and that its indexes do not depend on the way.
func TestChangesLeadToNextState(t *testing.T) {
	cfg := cluster.SmallWithSharedAddresses()
	rapid.Check(t, func(rt *rapid.T) {
		w, subject := newWorld(), newRecorder("r", nil)
		for _, step := range cluster.GenSequence(cfg, 8).Draw(rt, "steps") {
			objects := objectsOf(step.State)
			var gone []model.ID
			for id := range w.objects {
				if !slices.ContainsFunc(objects, func(o kinds.Object) bool { return o.ID() == id }) {
					gone = append(gone, id)
				}
			}
			c := w.apply(objects, gone)
			if err := subject.Apply(rt.Context(), c.upserts, c.deletes); err != nil {
				rt.Fatal(err)
			}
			if again := w.apply(objects, nil); !again.isEmpty() {
				rt.Fatalf("after %q the same state changes something: %v", step.What, again)
			}
			checkHeld(rt, step.What, subject.held, objects)
			checkIndexes(rt, step.What, w, objects)
		}
	})
}

func checkHeld(t *rapid.T, after string, held map[model.ID]kinds.Object, objects []kinds.Object) {
	want := map[model.ID]any{}
	for _, o := range append(slices.Clone(objects), kinds.ImpliedNamespaces(objects)...) {
		want[o.ID()] = o.Object
	}
	got := map[model.ID]any{}
	for id, o := range held {
		got[id] = o.Object
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("after %q a subject holds (-want +got):\n%s", after, diff)
	}
}

func checkIndexes(t *rapid.T, after string, w *world, objects []kinds.Object) {
	fresh := newWorld()
	fresh.apply(objects, nil)
	holders := func(w *world) map[string][]string {
		out := map[string][]string{}
		for a, pods := range w.holders {
			for _, p := range pods {
				out[a.String()] = append(out[a.String()], p.id.String())
			}
			slices.Sort(out[a.String()])
		}
		return out
	}
	if diff := cmp.Diff(holders(fresh), holders(w)); diff != "" {
		t.Fatalf("after %q addresses are held by (-fresh +got):\n%s", after, diff)
	}
	if diff := cmp.Diff(fresh.members, w.members); diff != "" {
		t.Fatalf("after %q namespaces have (-fresh +got):\n%s", after, diff)
	}
	want, wantErr := fresh.resolve(allPods)
	got, gotErr := w.resolve(allPods)
	if a, b := describeParties(want, wantErr), describeParties(got, gotErr); a != b {
		t.Fatalf("after %q */* is %s, want %s", after, b, a)
	}
}
