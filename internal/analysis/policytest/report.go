package policytest

import (
	"time"

	"github.com/sluice-net/sluice/api"
)

// Report is the result of one test. Its JSON form is stable.
type Report struct {
	File string `json:"file"`
	Name string `json:"name"`
	// Steps counts the states that were reached, the first included.
	Steps int `json:"steps"`
	// Probes counts the flows that were probed, each once for all subjects.
	Probes   int             `json:"probes"`
	Subjects []SubjectReport `json:"subjects"`
	// MismatchCount counts verdicts that were not the expected one, and flows that
	// cannot exist. Mismatches lists them, up to Options.MaxListed.
	MismatchCount int        `json:"mismatchCount"`
	Mismatches    []Mismatch `json:"mismatches,omitempty"`
	// DisagreementCount counts flows about which subjects gave different verdicts.
	DisagreementCount int            `json:"disagreementCount"`
	Disagreements     []Disagreement `json:"disagreements,omitempty"`
	// Problems of the manifests of a file that allows them.
	Problems []api.Problem `json:"problems,omitempty"`
	// Errors are why the test could not be run, completely or in part.
	Errors []string `json:"errors,omitempty"`
}

// SubjectReport is the share of one subject.
type SubjectReport struct {
	Name       string        `json:"name"`
	Probes     int           `json:"probes"` // that it answered
	Mismatches int           `json:"mismatches"`
	Applying   time.Duration `json:"applyingNs"`        // until all changes were enforced
	Unasked    int           `json:"unasked,omitempty"` // probes that do not apply to it
	Asking     time.Duration `json:"askingNs"`          // time for all Probes, without explanations
}

// Rate returns the probes per second.
func (s SubjectReport) Rate() float64 {
	if s.Asking <= 0 {
		return 0
	}
	return float64(s.Probes) / s.Asking.Seconds()
}

// Place identifies the probed flow.
type Place struct {
	From     string   `json:"from"` // as the test calls it, for selections the pod
	To       string   `json:"to"`
	Port     uint16   `json:"port,omitempty"`
	PortName string   `json:"portName,omitempty"` // the name that the test gives for Port
	Protocol string   `json:"protocol"`           // TCP, UDP, SCTP or ICMP
	Flow     api.Flow `json:"flow"`               // without addresses where there is no flow
}

// Mismatch is a verdict that was not the expected one.
type Mismatch struct {
	Step     string `json:"step"`
	Position string `json:"position"` // in the file: "steps[0].probes[2]", "matrix.allow[1]"
	Place
	Expected Verdict `json:"expected"`
	Got      Verdict `json:"got"`
	Subject  string  `json:"subject,omitempty"` // empty if there was nothing to probe
	Why      string  `json:"why,omitempty"`
}

// Disagreement is a flow about which subjects gave different verdicts.
type Disagreement struct {
	Step     string `json:"step"`
	Position string `json:"position"`
	Place
	Answers []SubjectAnswer `json:"answers"` // of all subjects
}

// SubjectAnswer is the answer of one subject.
type SubjectAnswer struct {
	Subject string  `json:"subject"`
	Got     Verdict `json:"got"`
	Why     string  `json:"why,omitempty"`
}

func newReport(f *File, subjects []Subject) Report {
	r := Report{File: f.Source, Name: f.Name}
	for _, s := range subjects {
		r.Subjects = append(r.Subjects, SubjectReport{Name: s.Name()})
	}
	return r
}

// OK reports whether the whole test was carried out and every verdict was the
// expected one, of every subject.
func (r Report) OK() bool {
	return r.MismatchCount == 0 && r.DisagreementCount == 0 && len(r.Errors) == 0
}
