package policytest

import (
	"encoding/json"
	"net/netip"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/analysis/expr"
)

// What stands in every file.
const (
	APIVersion = "sluice/v1"
	Kind       = "PolicyTest"
)

// Verdict is what a probe expects, or what a subject answered.
type Verdict string

// The verdicts. NoFlow is never expected: two ends without addresses of the same family cannot
// communicate under any policy.
const (
	Allow  Verdict = "allow"
	Deny   Verdict = "deny"
	NoFlow Verdict = "no flow"
)

func verdictOf(allowed bool) Verdict {
	if allowed {
		return Allow
	}
	return Deny
}

// File is one policy test: one document of a file, as Parse checked it.
type File struct {
	// Source is the file, with the number of the document where there are several.
	Source string
	Name   string
	// Dir is the directory that Files are relative to.
	Dir string
	// AllowProblems says that manifests may have problems: what is wrong with
	// them is reported and does not end the test.
	AllowProblems bool
	// Externals are the addresses outside of the cluster that have a name.
	Externals map[string][]netip.Addr
	// Start is what stands at the top level: the first state, and what is asked
	// of it. Its Objects are the file's "objects".
	Start Step
	Steps []Step // in order, each applied to the state before it
}

// Step is one change of the cluster, and the probes after it.
type Step struct {
	Name string
	// Path is where the step stands in the file: "steps[2]", "" for Start.
	Path    string
	Files   []string          // manifests and directories of them
	Objects []json.RawMessage // Kubernetes objects; they replace those of Files
	Delete  []model.ID
	Probes  []Probe
	Matrix  *Matrix // nil: none
}

// Title names the step for people.
func (s Step) Title() string {
	switch {
	case s.Name != "":
		return s.Name
	case s.Path == "":
		return "start"
	}
	return s.Path
}

// pathOf returns the path of a field of the step.
func (s Step) pathOf(field string) string {
	if s.Path == "" {
		return field
	}
	return s.Path + "." + field
}

// Probe expects one verdict of every flow from each of From to each of To on
// each of Ports.
type Probe struct {
	From, To []Expr
	Ports    []Port
	Expect   Verdict
}

// Matrix expects that exactly the flows that Allow lists are allowed.
type Matrix struct {
	Pods []Expr // none: every live pod
	// Externals are names of the file's externals.
	Externals []string
	Ports     []Port // none: every port that Pods declare and that Allow lists
	Allow     []AllowEntry
}

// AllowEntry is a part of a matrix that is allowed.
type AllowEntry struct {
	From, To []Expr
	Ports    []Port
	AllPorts bool // every port of the matrix
}

// Port is the destination port of a probe, by its number or by its name on the destination pod.
// api.ICMP stands for the ICMP of the flow's family and has neither.
type Port = expr.Port
