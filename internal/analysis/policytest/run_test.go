package policytest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/ksr/kinds"
)

func always(allowed bool) func(Question) bool { return func(Question) bool { return allowed } }

func mustRun(t *testing.T, r *Runner, f *File) Report {
	t.Helper()
	report, err := r.Run(t.Context(), f, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// pod returns a pod as one line of YAML.
func podLine(ns, name, app, ip string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: %s, labels: {app: %s}}, "+
		"spec: {containers: [{name: c, ports: [{name: http, containerPort: 80}]}]}, status: {phase: Running, podIP: %s}}", name, ns, app, ip)
}

const policyLine = "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: deny, namespace: shop}, spec: {podSelector: {}}}"

func TestStepsApplyDifferenceOnly(t *testing.T) {
	a, b := podLine("shop", "a", "web", "10.0.0.1"), podLine("shop", "b", "db", "10.0.0.2")
	f := parseOne(t, header+`
objects: [`+a+`, `+b+`]
probes: [{from: shop/a, to: shop/b, port: 80, expect: allow}]
steps:
  - name: nothing changes
    apply: [`+a+`]
  - name: one of two is new
    apply: [`+a+`, `+podLine("other", "c", "web", "10.0.0.3")+`]
  - name: a relabelled pod and a policy
    apply: [`+podLine("shop", "a", "api", "10.0.0.1")+`, `+policyLine+`]
    delete: [{kind: Pod, namespace: other, name: c}]
  - name: the namespace gets an object of its own
    apply: [{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {team: shop}}}]
  - name: with the namespace everything in it goes
    delete: [{kind: Namespace, name: shop}, {kind: Pod, namespace: shop, name: a}]
`)
	s := newRecorder("r", always(true))
	report := mustRun(t, NewRunner(s), f)
	want := []string{
		"+Namespace shop +Pod shop/a +Pod shop/b",
		"+Namespace other +Pod other/c",
		"+Pod shop/a +NetworkPolicy shop/deny -Namespace other -Pod other/c",
		"+Namespace shop",
		"-Namespace shop -Pod shop/a -Pod shop/b -NetworkPolicy shop/deny",
	}
	if diff := cmp.Diff(want, s.batches); diff != "" {
		t.Errorf("batches (-want +got):\n%s", diff)
	}
	if report.Steps != 6 || report.Probes != 1 || !report.OK() {
		t.Errorf("report: %+v", report)
	}
}

func TestRunnerContinuesFromStateOfLastFile(t *testing.T) {
	a, b := podLine("shop", "a", "web", "10.0.0.1"), podLine("shop", "b", "db", "10.0.0.2")
	probes := "probes: [{from: out, to: shop/b, port: 80, expect: allow}]\n"
	first := parseOne(t, header+"externals: {out: 198.51.100.7}\nobjects: ["+a+", "+b+"]\n"+probes)
	second := parseOne(t, header+"externals: {out: 198.51.100.8}\nobjects: ["+b+", "+policyLine+"]\n"+probes)
	s := newRecorder("r", always(true))
	r := NewRunner(s)
	mustRun(t, r, first)
	mustRun(t, r, second)
	mustRun(t, r, second)
	want := []string{"+Namespace shop +Pod shop/a +Pod shop/b", "+NetworkPolicy shop/deny -Pod shop/a"}
	if diff := cmp.Diff(want, s.batches); diff != "" {
		t.Errorf("batches (-want +got):\n%s", diff)
	}
	var asked []string
	for _, q := range s.asked {
		asked = append(asked, q.Flow.String())
	}
	wantAsked := []string{"198.51.100.7:49152 -> 10.0.0.2:80/tcp", "198.51.100.8:49152 -> 10.0.0.2:80/tcp", "198.51.100.8:49152 -> 10.0.0.2:80/tcp"}
	if diff := cmp.Diff(wantAsked, asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
}

func TestFilesAreRelativeAndInlineObjectsReplace(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("manifests/pods.yaml", podLine("shop", "a", "web", "10.0.0.1")+"\n---\n"+podLine("shop", "b", "db", "10.0.0.2"))
	write("late.yaml", policyLine)
	write("tests/t.yaml", header+`
files: ../manifests
objects: [`+podLine("shop", "b", "db", "10.0.0.22")+`]
probes: [{from: shop/a, to: shop/b, port: http, expect: allow}]
steps: [{files: [`+filepath.Join(dir, "late.yaml")+`]}]
`)
	files, err := Load(filepath.Join(dir, "tests/t.yaml"), nil)
	if err != nil {
		t.Fatal(err)
	}
	s := newRecorder("r", always(true))
	mustRun(t, NewRunner(s), files[0])
	if diff := cmp.Diff([]string{"+Namespace shop +Pod shop/a +Pod shop/b", "+NetworkPolicy shop/deny"}, s.batches); diff != "" {
		t.Errorf("batches (-want +got):\n%s", diff)
	}
	if got := s.asked[0].Flow.Dst.String(); got != "10.0.0.22" {
		t.Errorf("shop/b is asked at %s, want the address of the inline object", got)
	}
}

func TestMismatchesSayWhatWhereAndWhy(t *testing.T) {
	f := parseOne(t, header+miniature+`  - {from: internet, to: shop/app=db, port: 5432, expect: allow}
  - {from: infra/six-0, to: shop/db-0, port: sql, expect: deny}
steps:
  - name: again
    matrix: {pods: [shop/db-0], externals: [internet], ports: [5432/TCP], allow: [{from: internet, to: shop/db-0, ports: all}]}
`)
	report := mustRun(t, NewRunner(NewOracle()), f)
	denied := "ingress of shop/db-0: isolated by shop/db, and no rule matches"
	want := []Mismatch{
		{Step: "start", Position: "probes[1]", Place: Place{From: "internet", To: "shop/db-0", Port: 5432, Protocol: "TCP"},
			Expected: Allow, Got: Deny, Subject: "oracle", Why: denied},
		{Step: "start", Position: "probes[2]", Place: Place{From: "infra/six-0", To: "shop/db-0", Port: 5432, PortName: "sql", Protocol: "TCP"},
			Expected: Deny, Got: NoFlow, Why: "no common address family: infra/six-0 has IPv6 and shop/db-0 has IPv4"},
		{Step: "again", Position: "matrix", Place: Place{From: "shop/db-0", To: "internet", Port: 5432, Protocol: "TCP"},
			Expected: Deny, Got: Allow, Subject: "oracle", Why: "egress of shop/db-0: open: no policy isolates egress"},
		{Step: "again", Position: "steps[0].matrix.allow[0]", Place: Place{From: "internet", To: "shop/db-0", Port: 5432, Protocol: "TCP"},
			Expected: Allow, Got: Deny, Subject: "oracle", Why: denied},
	}
	want[2].Position = "steps[0].matrix"
	if diff := cmp.Diff(want, report.Mismatches, cmpopts.IgnoreFields(Place{}, "Flow")); diff != "" {
		t.Errorf("mismatches (-want +got):\n%s", diff)
	}
	if report.MismatchCount != 4 || report.Probes != 5 || report.OK() {
		t.Errorf("%d mismatches of %d probes, OK is %t", report.MismatchCount, report.Probes, report.OK())
	}
	if got := report.Subjects[0]; got.Probes != 4 || got.Mismatches != 3 || got.Asking <= 0 || got.Applying <= 0 {
		t.Errorf("subject: %+v", got)
	}
}

func TestSubjectsThatDisagreeAreBothReported(t *testing.T) {
	f := parseOne(t, header+miniature)
	yes, no := newRecorder("yes", always(true)), newRecorder("no", always(false))
	report := mustRun(t, NewRunner(yes, no, NewOracle()), f)
	want := []Disagreement{{Step: "start", Position: "probes[0]",
		Place: Place{From: "shop/web-0", To: "shop/db-0", Port: 5432, PortName: "sql", Protocol: "TCP"},
		Answers: []SubjectAnswer{{"yes", Allow, "because yes says so"}, {"no", Deny, "because no says so"},
			{"oracle", Allow, "egress of shop/web-0: open: no policy selects it; ingress of shop/db-0: allowed by shop/db rule 0"}}}}
	if diff := cmp.Diff(want, report.Disagreements, cmpopts.IgnoreFields(Place{}, "Flow")); diff != "" {
		t.Errorf("disagreements (-want +got):\n%s", diff)
	}
	if report.DisagreementCount != 1 || len(report.Mismatches) != 1 || report.Mismatches[0].Subject != "no" {
		t.Errorf("report: %+v", report)
	}
	if got := []int{report.Subjects[0].Mismatches, report.Subjects[1].Mismatches, report.Subjects[2].Mismatches}; !slices.Equal(got, []int{0, 1, 0}) {
		t.Errorf("mismatches by subject: %v", got)
	}
}

func TestReportOfManyMismatchesIsCut(t *testing.T) {
	f := parseOne(t, header+miniature+"  - {from: internet, to: shop/db-0, ports: [1, 2, 3, 4, 5], expect: allow}\n")
	for limit, want := range map[int]int{2: 2, -1: 5, 0: 5} {
		s := newRecorder("closed", func(q Question) bool { return q.Flow.DstPort > 5 })
		report, err := Run(t.Context(), f, []Subject{s, NewOracle()}, Options{MaxListed: limit})
		if err != nil {
			t.Fatal(err)
		}
		if len(report.Mismatches) != min(want, 10) && limit > 0 || report.MismatchCount != 10 {
			t.Errorf("limit %d: %d of %d mismatches are listed", limit, len(report.Mismatches), report.MismatchCount)
		}
		explained := 0
		for _, q := range s.asked {
			if q.Explain {
				explained++
			}
		}
		if limit == 2 && explained != 1 {
			t.Errorf("%d questions were explained for a report of 2 mismatches by 2 subjects", explained)
		}
	}
}

func TestRunListsProblemsOfManifests(t *testing.T) {
	bad := podLine("shop", "a", "web", "10.0.0.1") + `, {apiVersion: v1, kind: Pod, metadata: {name: b, namespace: shop, labels: [x]}},
  {apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: p, namespace: shop}, spec: {podSelector: {}, ingress: [{from: [{}]}]}}`
	probes := "probes: [{from: 198.51.100.7, to: shop/a, port: 80, expect: deny}]\n"
	s := newRecorder("r", always(false))
	report, err := Run(t.Context(), parseOne(t, header+"objects: ["+bad+"]\n"+probes), []Subject{s}, Options{})
	var problems Problems
	if !errors.As(err, &problems) || len(problems) != 2 || len(report.Errors) != 2 || report.OK() || len(s.batches) != 0 {
		t.Fatalf("error %v, report %+v, batches %q", err, report, s.batches)
	}
	for i, want := range []string{"t.yaml: objects[1]: Pod shop/b: metadata.labels", "t.yaml: objects[2]: NetworkPolicy shop/p: spec.ingress[0].from[0]: names no peer"} {
		if !strings.HasPrefix(problems[i].Error(), want) {
			t.Errorf("problem %d is %q, want %q", i, problems[i].Error(), want)
		}
	}
	report = mustRun(t, NewRunner(NewOracle()), parseOne(t, header+"allowProblems: true\nobjects: ["+bad+"]\n"+probes))
	if len(report.Problems) != 2 || !report.OK() {
		t.Errorf("with allowProblems: %+v", report)
	}
}

func TestRunKeepsRefusedObjectsFromSubjects(t *testing.T) {
	f := parseOne(t, header+miniature+`
allowProblems: true
steps:
  - apply: [{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: db, namespace: shop}, spec: {podSelector: {}, policyTypes: [Outgress]}}]
    probes: [{from: shop/web-0, to: shop/db-0, port: sql, expect: allow}, {from: internet, to: shop/db-0, port: sql, expect: deny}]
`)
	s := newRecorder("r", always(true))
	report := mustRun(t, NewRunner(s, NewOracle()), f)
	if len(s.batches) != 1 || len(report.Problems) != 1 || report.Steps != 2 {
		t.Errorf("batches %q, report %+v", s.batches, report)
	}
	if got := report.Subjects[1].Mismatches; got != 0 {
		t.Errorf("the version before is not in force any more: %+v", report.Mismatches)
	}
}

func TestStepsThatFailEndTest(t *testing.T) {
	for name, tc := range map[string]struct {
		step string
		want []string
	}{
		"deletes what is not there": {"delete: [{kind: Pod, namespace: shop, name: nobody}, {kind: Namespace, name: nowhere}]",
			[]string{"t.yaml: steps[0].delete[0]: there is no Pod shop/nobody", "t.yaml: steps[0].delete[1]: there is no Namespace nowhere"}},
		"deletes and applies": {"{delete: [{kind: Pod, namespace: shop, name: db-0}], apply: [" + podLine("shop", "db-0", "db", "10.0.0.2") + "]}",
			[]string{"t.yaml: steps[0].delete[0]: Pod shop/db-0 is deleted and applied in one step"}},
		"applies into a namespace that it deletes": {"{delete: [{kind: Namespace, name: shop}], apply: [" + podLine("shop", "new", "db", "10.0.0.9") + "]}",
			[]string{"t.yaml: steps[0].delete[0]: Pod shop/new is applied in the step that deletes its namespace"}},
		"applies an object twice": {"apply: [" + policyLine + ", " + policyLine + "]",
			[]string{"t.yaml: steps[0].apply[1]: is NetworkPolicy shop/deny, which is in steps[0].apply[0] already"}},
		"applies what policies do not know": {"apply: [{apiVersion: v1, kind: Secret, metadata: {name: x}}]",
			[]string{"t.yaml: steps[0].apply[0]: is of no kind that policies know: want one of Node, Namespace, Pod, NetworkPolicy, AdminNetworkPolicy, BaselineAdminNetworkPolicy, ClusterNetworkPolicy, Service, EndpointSlice"}},
		"names a file that is not there": {"files: nowhere.yaml", []string{"t.yaml: steps[0].files: load manifests: "}},
	} {
		t.Run(name, func(t *testing.T) {
			step := tc.step
			if !strings.HasPrefix(step, "{") {
				step = "{" + step + "}"
			}
			f := parseOne(t, header+miniature+"steps: ["+step+", {probes: [{from: internet, to: shop/db-0, port: 80, expect: allow}]}]\n")
			s := newRecorder("r", always(true))
			report, err := Run(t.Context(), f, []Subject{s}, Options{})
			if err == nil || len(report.Errors) != len(tc.want) {
				t.Fatalf("errors %q, want %q", report.Errors, tc.want)
			}
			for i, got := range report.Errors {
				if want := tc.want[i]; !strings.Contains(got, want) {
					t.Errorf("error is %q, want %q", got, want)
				}
			}
			if report.Steps != 1 || report.Probes != 1 || len(s.batches) != 1 {
				t.Errorf("after the mistake the test went on: %+v", report)
			}
		})
	}
}

func TestProbeThatCannotBeAskedHidesNoOther(t *testing.T) {
	f := parseOne(t, header+miniature+`  - {from: shop/nobody, to: shop/db-0, port: 80, expect: deny}
steps:
  - probes: [{from: internet, to: shop/db-0, port: 80, expect: allow}]
`)
	report, err := Run(t.Context(), f, []Subject{NewOracle()}, Options{})
	if err == nil || !slices.Equal(report.Errors, []string{"t.yaml: probes[1].from: there is no pod shop/nobody"}) {
		t.Errorf("errors: %q", report.Errors)
	}
	if report.Steps != 2 || report.MismatchCount != 1 {
		t.Errorf("report: %+v", report)
	}
}

func TestSubjectThatFailsEndsTest(t *testing.T) {
	f := parseOne(t, header+miniature)
	broken := errors.New("the vswitch is gone")
	t.Run("while it applies, for good", func(t *testing.T) {
		s := newRecorder("acl", always(true))
		s.fail = broken
		r := NewRunner(s)
		if _, err := r.Run(t.Context(), f, Options{}); !errors.Is(err, broken) || !strings.Contains(err.Error(), "t.yaml: start: apply to acl") {
			t.Errorf("error: %v", err)
		}
		if _, err := r.Run(t.Context(), f, Options{}); !errors.Is(err, broken) || len(s.batches) != 1 {
			t.Errorf("error of the next file: %v, batches %q", err, s.batches)
		}
	})
	t.Run("while it is asked", func(t *testing.T) {
		s := newRecorder("acl", always(true))
		s.failAsk = broken
		if _, err := Run(t.Context(), f, []Subject{s}, Options{}); !errors.Is(err, broken) || !strings.Contains(err.Error(), "ask acl about 10.0.0.1:49152 -> 10.0.0.2:5432/tcp") {
			t.Errorf("error: %v", err)
		}
	})
	t.Run("while it explains", func(t *testing.T) {
		s := &explainer{recorder: newRecorder("acl", always(false)), err: broken}
		if _, err := Run(t.Context(), f, []Subject{s}, Options{}); !errors.Is(err, broken) {
			t.Errorf("error: %v", err)
		}
	})
	t.Run("when nobody waits any more", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		s := newRecorder("acl", always(true))
		if _, err := Run(ctx, f, []Subject{s}, Options{}); !errors.Is(err, context.Canceled) || len(s.asked) > 0 {
			t.Errorf("error: %v after %d questions", err, len(s.asked))
		}
	})
}

// explainer fails when it is to explain.
type explainer struct {
	*recorder
	err error
}

func (e *explainer) Ask(ctx context.Context, q Question) (Answer, error) {
	if q.Explain {
		return Answer{}, e.err
	}
	return e.recorder.Ask(ctx, q)
}

func TestOracleForgetsDeletedObjects(t *testing.T) {
	o := NewOracle()
	f := parseOne(t, header+miniature)
	m, err := f.manifests(f.Start)
	if err != nil {
		t.Fatal(err)
	}
	q := question(Endpoint{Addr: f.Externals["internet"][0]}, Endpoint{Addr: f.Externals["half-pod"][1]}, Port{Number: 80, Protocol: 6})
	ask := func() bool {
		t.Helper()
		a, err := o.Ask(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		return a.Allowed
	}
	if err := o.Apply(t.Context(), m.objects, nil); err != nil || ask() {
		t.Errorf("error %v; isolated pod is reached: %t", err, ask())
	}
	if err := o.Apply(t.Context(), nil, []model.ID{{Kind: model.KindNetworkPolicy, Namespace: "shop", Name: "db"}}); err != nil || !ask() {
		t.Errorf("error %v; pod without a policy is reached: %t", err, ask())
	}
	if err := o.Apply(t.Context(), []kinds.Object{{Object: 5}}, nil); err == nil {
		t.Error("an object of no kind is accepted")
	}
	if err := o.Close(); err != nil {
		t.Error(err)
	}
}
