package differential

import (
	"fmt"

	"github.com/sluice-net/sluice/api"
)

// Check is a property that must hold.
type Check string

// The properties.
const (
	CheckVerdict     Check = "verdict"     // the stacks and the specification agree
	CheckEstablished Check = "established" // flows that have sessions are judged by the rules of now
	CheckReply       Check = "reply"       // answers to allowed flows arrive
	CheckFresh       Check = "fresh"       // what is installed is what a new node installs
	CheckDangling    Check = "dangling"    // no reference leads to nothing, nothing is left over
	CheckAgain       Check = "again"       // the same state is no operation
	CheckRestart     Check = "restart"     // of an agent is no operation
	CheckConverges   Check = "converges"   // what was told is enforced, also after failures
	CheckNeverFewer  Check = "never fewer" // in between nothing is judged as before and after it is not
)

// like reports whether two checks may be the same trouble: a flow that is misjudged is first
// met as a new one, or again when it was asked about before the event.
func (c Check) like(o Check) bool { return c == o || c.judges() && o.judges() }

func (c Check) judges() bool { return c == CheckVerdict || c == CheckEstablished }

// Divergence says that a property does not hold.
type Divergence struct {
	Check Check
	Text  string
	Flow  api.Flow // that is judged wrong; zero where the check is not about one
}

// Error implements error.
func (d *Divergence) Error() string { return fmt.Sprintf("%s: %s", d.Check, d.Text) }

func diverge(c Check, format string, args ...any) error {
	return &Divergence{Check: c, Text: fmt.Sprintf(format, args...)}
}

// misjudged is the divergence of a flow.
func misjudged(c Check, f api.Flow, format string, args ...any) error {
	return &Divergence{Check: c, Text: fmt.Sprintf("%s\n%s", f, fmt.Sprintf(format, args...)), Flow: f}
}
