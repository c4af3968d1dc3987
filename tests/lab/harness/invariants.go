package harness

import (
	"errors"
	"fmt"

	"github.com/sluice-net/sluice/api"
)

// Invariant is the name of a property that must hold.
type Invariant string

// The invariants of a state, which Check examines. They hold however the state came about.
const (
	Established Invariant = "established"
	Verdict     Invariant = "verdict"
	Reply       Invariant = "reply"
	Desired     Invariant = "desired"
	Explained   Invariant = "explained"
	Contract    Invariant = "contract"
	Dangling    Invariant = "dangling"
	Fresh       Invariant = "fresh"
	Again       Invariant = "again"
)

// The invariants of the way from one state to the next.
const (
	Converges  Invariant = "converges"
	Restart    Invariant = "restart"
	NeverFewer Invariant = "never fewer"
)

// Invariants explains each invariant.
var Invariants = map[Invariant]string{
	Established: "flows that have sessions are judged by the rules of now",
	Verdict:     "the dataplanes and the specification agree about first packets",
	Reply:       "answers to allowed flows arrive",
	Desired:     "the desired state that renderers receive, evaluated rule by rule, is what the specification says",
	Explained:   "renderers give reasons that are those of the specification",
	Contract:    "renderers receive what the contract of package renderer permits",
	Dangling:    "no reference leads to nothing, and nothing is left over",
	Fresh:       "what is installed is what a new cluster installs that receives the same at once",
	Again:       "sending what is there already, in any way, changes nothing",
	Converges:   "what nodes receive is enforced, also after failures",
	Restart:     "the restart of an agent changes nothing",
	NeverFewer:  "between two states no flow is judged as in neither",
}

// Violation is the error of an invariant that does not hold.
type Violation struct {
	Invariant Invariant
	Text      string
	Flow      api.Flow // that is judged wrong; zero where the invariant is not about one
}

// Error implements error.
func (v *Violation) Error() string { return fmt.Sprintf("%s: %s", v.Invariant, v.Text) }

// Violated returns the error of an invariant that does not hold.
func Violated(i Invariant, format string, args ...any) error {
	return &Violation{Invariant: i, Text: fmt.Sprintf(format, args...)}
}

// misjudged is the violation of a flow.
func misjudged(i Invariant, f api.Flow, format string, args ...any) error {
	return &Violation{Invariant: i, Text: fmt.Sprintf("%s\n%s", f, fmt.Sprintf(format, args...)), Flow: f}
}

// ViolationOf returns the violation that an error is, the first where it is several; nil for other
// errors.
func ViolationOf(err error) *Violation {
	var v *Violation
	errors.As(err, &v)
	return v
}
