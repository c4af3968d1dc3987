// Package preflight checks the requirements of a program before it starts: one small function per
// requirement, each with a message for a failure and its remedy.
//
// # Invariants
//
// A check changes nothing on the machine, and ends within Limit. An inconclusive check is a
// warning.
package preflight

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/sluice-net/sluice/internal/lib/term"
)

// Limit bounds one check.
const Limit = 2 * time.Second

// Level is the severity of a result.
type Level string

// The levels. An error stops or impairs the program.
const (
	OK      Level = "ok"
	Warning Level = "warning"
	Error   Level = "error"
)

// Finding is the result of a check: the detail, and the remedy. The zero value is that of a check
// that could not be made because of another one, which explains why.
type Finding struct {
	Level  Level  `json:"result"`
	Detail string `json:"detail,omitempty"`
	Remedy string `json:"remedy,omitempty"`
}

// Fine returns a finding that needs no action.
func Fine(format string, args ...any) Finding {
	return Finding{Level: OK, Detail: fmt.Sprintf(format, args...)}
}

// Warn returns a warning with its remedy.
func Warn(err error, remedy string) Finding { return Finding{Warning, text(err), remedy} }

// Fail returns an error, which stops or impairs the program, with its remedy.
func Fail(err error, remedy string) Finding { return Finding{Error, text(err), remedy} }

// text is an error on one line.
func text(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// Check checks one requirement of a program.
type Check struct {
	Name string
	// Fatal means that the program cannot start if the check fails.
	Fatal bool
	Find  func(ctx context.Context) Finding
}

// Result is a check with its finding.
type Result struct {
	Name string `json:"check"`
	Finding
	fatal bool
}

// Line returns the finding as one line.
func (r Result) Line() string {
	if r.Remedy == "" {
		return r.Detail
	}
	return r.Detail + ": " + r.Remedy
}

// Report is the results of a list of checks, in its order.
type Report []Result

// Run runs the checks one after the other. Once ctx has ended, it starts no further check.
func Run(ctx context.Context, checks []Check) (out Report) {
	for _, c := range checks {
		if ctx.Err() != nil {
			break
		}
		limited, cancel := context.WithTimeout(ctx, Limit)
		if f := c.Find(limited); f != (Finding{}) {
			out = append(out, Result{c.Name, f, c.Fatal})
		}
		cancel()
	}
	return out
}

// Failed reports whether something stops or impairs the program.
func (r Report) Failed() bool {
	for _, x := range r {
		if x.Level == Error {
			return true
		}
	}
	return false
}

// Err returns an error of one line if the program cannot start.
func (r Report) Err() error {
	var fatal []Result
	for _, x := range r {
		if x.fatal && x.Level == Error {
			fatal = append(fatal, x)
		}
	}
	switch len(fatal) {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("%s", fatal[0].Line())
	}
	return fmt.Errorf("%s (and %d more: see sluice-agent check)", fatal[0].Line(), len(fatal)-1)
}

// Problems returns the results that are not fine but do not prevent the start.
func (r Report) Problems() (out []Result) {
	for _, x := range r {
		if x.Level == Warning || x.Level == Error && !x.fatal {
			out = append(out, x)
		}
	}
	return out
}

var styles = map[Level]term.Style{OK: term.Green, Warning: term.Amber, Error: term.Red}

// Print writes a table. A remedy is below its detail, so that lines stay short.
func (r Report) Print(w *term.Writer) {
	table := term.NewTable("CHECK", "RESULT", "DETAIL AND REMEDY")
	for _, x := range r {
		table.Row(x.Name, term.Cell{Text: string(x.Level), Style: styles[x.Level]}, x.Detail)
		if x.Remedy != "" {
			table.Row("", "", "-> "+x.Remedy)
		}
	}
	table.Print(w)
}
