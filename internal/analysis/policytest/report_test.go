package policytest

import (
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/lib/term"
)

// sample is a report with one of everything.
func sample() Report {
	addr := netip.MustParseAddr
	v6 := Place{From: "shop/web-0", To: "shop/db-0", Port: 5432, PortName: "sql", Protocol: "TCP",
		Flow: api.Flow{Src: addr("fd00::1"), Dst: addr("fd00::2"), Protocol: api.TCP, SrcPort: sourcePort, DstPort: 5432}}
	icmp := Place{From: "10.0.0.1", To: "shop/db-0", Protocol: "ICMP",
		Flow: api.Flow{Src: addr("10.0.0.1"), Dst: addr("10.0.0.2"), Protocol: api.ICMP}}
	return Report{
		File: "tests/shop.yaml", Name: "shop", Steps: 2, Probes: 4512,
		Subjects: []SubjectReport{
			{Name: "oracle", Probes: 4512, Mismatches: 0, Applying: time.Millisecond, Asking: 12_345_678},
			{Name: "acl", Probes: 4512, Mismatches: 1, Applying: time.Millisecond, Asking: 456_789_012},
		},
		MismatchCount: 3,
		Mismatches: []Mismatch{
			{Step: "start", Position: "probes[2]", Place: v6, Expected: Allow, Got: Deny, Subject: "acl", Why: "table 7, rule 3"},
			{Step: "a pod leaves", Position: "steps[0].matrix", Place: icmp, Expected: Deny, Got: NoFlow, Why: "no common address family"},
		},
		DisagreementCount: 1,
		Disagreements: []Disagreement{{Step: "start", Position: "probes[2]", Place: v6, Answers: []SubjectAnswer{
			{"oracle", Allow, "allowed by shop/db rule 0"}, {"acl", Deny, "table 7, rule 3"}}}},
		Problems: []api.Problem{{Source: "pods.yaml", Object: "Pod shop/x", Field: "spec", Reason: "is missing"}},
	}
}

func written(t *testing.T, r Report) string {
	t.Helper()
	var b strings.Builder
	w := term.NewWriter(&b)
	r.Write(w)
	if err := w.Err(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestReportIsGolden(t *testing.T) {
	want := `problem pods.yaml: Pod shop/x: spec: is missing
FAIL shop: 3 mismatches
  STEP          FROM                  TO                   PORT          EXPECTED  GOT      BY   PROBE            WHY
  start         shop/web-0 (fd00::1)  shop/db-0 (fd00::2)  sql=5432/TCP  allow     deny     acl  probes[2]        table 7, rule 3
  a pod leaves  10.0.0.1              shop/db-0            ICMP          deny      no flow  -    steps[0].matrix  no common address family
  and 1 more
FAIL shop: the subjects disagree about 1 flow
  STEP   FROM                  TO                   PORT          BY      GOT    PROBE      WHY
  start  shop/web-0 (fd00::1)  shop/db-0 (fd00::2)  sql=5432/TCP  oracle  allow  probes[2]  allowed by shop/db rule 0
  start  shop/web-0 (fd00::1)  shop/db-0 (fd00::2)  sql=5432/TCP  acl     deny   probes[2]  table 7, rule 3
FAIL  shop  oracle  4512 probes in 2 steps  0 mismatches  13.3ms  365000 probes/s
FAIL  shop  acl     4512 probes in 2 steps  1 mismatch    458ms   9880 probes/s
`
	if diff := cmp.Diff(want, written(t, sample())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestReportMergesPortsOfEqualMismatch(t *testing.T) {
	r := Report{Name: "t", Subjects: []SubjectReport{{Name: "acl"}}}
	for i, to := range []string{"a/x", "a/x", "a/x", "a/x", "a/x", "a/y", "a/y", "a/x"} {
		place := Place{From: "a/w", To: to, Port: uint16(1 + i), Protocol: "TCP"}
		r.MismatchCount++
		r.DisagreementCount++
		r.Mismatches = append(r.Mismatches, Mismatch{Step: "s", Position: "matrix", Place: place, Expected: Deny, Got: Allow, Subject: "acl", Why: "open"})
		r.Disagreements = append(r.Disagreements, Disagreement{Step: "s", Position: "matrix", Place: place, Answers: []SubjectAnswer{{"acl", Allow, "open"}, {"oracle", Deny, "isolated"}}})
	}
	r.Mismatches[6].Why = "another reason"
	want := `FAIL t: 8 mismatches
  STEP  FROM  TO   PORT                            EXPECTED  GOT    BY   PROBE   WHY
  s     a/w   a/x  1/TCP, 2/TCP, 3/TCP and 2 more  deny      allow  acl  matrix  open
  s     a/w   a/y  6/TCP                           deny      allow  acl  matrix  open
  s     a/w   a/y  7/TCP                           deny      allow  acl  matrix  another reason
  s     a/w   a/x  8/TCP                           deny      allow  acl  matrix  open
FAIL t: the subjects disagree about 8 flows
  STEP  FROM  TO   PORT                            BY      GOT    PROBE   WHY
  s     a/w   a/x  1/TCP, 2/TCP, 3/TCP and 2 more  acl     allow  matrix  open
  s     a/w   a/x  1/TCP, 2/TCP, 3/TCP and 2 more  oracle  deny   matrix  isolated
  s     a/w   a/y  6/TCP, 7/TCP                    acl     allow  matrix  open
  s     a/w   a/y  6/TCP, 7/TCP                    oracle  deny   matrix  isolated
  s     a/w   a/x  8/TCP                           acl     allow  matrix  open
  s     a/w   a/x  8/TCP                           oracle  deny   matrix  isolated
`
	got, _, _ := strings.Cut(written(t, r), "FAIL  t")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestReportOfSuccessIsOneLinePerSubject(t *testing.T) {
	r := Report{File: "t.yaml", Name: "t", Steps: 1, Probes: 1, Subjects: []SubjectReport{{Name: "oracle", Probes: 1, Asking: 999}}}
	if got, want := written(t, r), "ok  t  oracle  1 probe in 1 step  0 mismatches  999ns  1000000 probes/s\n"; got != want {
		t.Errorf("got  %swant %s", got, want)
	}
}

func TestReportCountsMismatchesPerSubject(t *testing.T) {
	r := Report{Name: "t", MismatchCount: 1, Mismatches: []Mismatch{{Subject: "acl"}},
		Subjects: []SubjectReport{{Name: "oracle"}, {Name: "acl", Mismatches: 1}}}
	if a, b := r.state(r.Subjects[0]).Text, r.state(r.Subjects[1]).Text; a != "ok" || b != "FAIL" {
		t.Errorf("oracle is %s, acl is %s", a, b)
	}
	r.Errors = []string{"t.yaml: probes[0].from: there is no pod a/b"}
	if got := written(t, r); !strings.Contains(got, "error t: t.yaml: probes[0].from: there is no pod a/b\n") || !strings.Contains(got, "ERROR  t  oracle") || r.OK() {
		t.Errorf("OK is %t, report:\n%s", r.OK(), got)
	}
}

func TestReportWriteReturnsFirstError(t *testing.T) {
	w := term.NewWriter(failing{})
	sample().Write(w)
	if !errors.Is(w.Err(), errFull) {
		t.Errorf("error %v, want %v", w.Err(), errFull)
	}
}

var errFull = errors.New("no space left")

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errFull }

func TestReportSurvivesJSON(t *testing.T) {
	raw, err := json.Marshal(sample())
	if err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(raw, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sample(), back, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
	for _, field := range []string{`"from":"shop/web-0"`, `"portName":"sql"`, `"expected":"allow"`, `"src":"fd00::1"`, `"askingNs":12345678`, `"mismatchCount":3`} {
		if !strings.Contains(string(raw), field) {
			t.Errorf("%s is not in %s", field, raw)
		}
	}
}
