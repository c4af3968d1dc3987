// Package preflight checks what a program needs before it starts: one small function per need, each
// with words for what is wrong and what to do about it.
//
// # Invariants
//
// A check changes nothing on the machine, and ends within Limit. What cannot be found out is a
// warning.
package preflight

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/sluice-net/sluice/internal/term"
)

// Limit bounds one check.
const Limit = 2 * time.Second

// Level is how bad a result is.
type Level string

// The levels. Error is what stops or impairs the program.
const (
	OK      Level = "ok"
	Warning Level = "warning"
	Error   Level = "error"
)

// Finding is what a check found: what it is and why, and what to do. The zero value is that of a
// check that could not be made because of another one, which says why.
type Finding struct {
	Level  Level  `json:"result"`
	Detail string `json:"detail,omitempty"`
	Remedy string `json:"remedy,omitempty"`
}

// Fine returns a finding about which nothing needs to be done.
func Fine(format string, args ...any) Finding {
	return Finding{Level: OK, Detail: fmt.Sprintf(format, args...)}
}

// Warn and Fail return what is wrong, and what to do.
func Warn(err error, remedy string) Finding { return Finding{Warning, text(err), remedy} }

// Fail returns a finding that stops or impairs the program.
func Fail(err error, remedy string) Finding { return Finding{Error, text(err), remedy} }

// text is an error on one line.
func text(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// Check is one need of a program.
type Check struct {
	Name string
	// Fatal says that the program cannot start when the check fails.
	Fatal bool
	Find  func(ctx context.Context) Finding
}

// Result is what became of a check.
type Result struct {
	Name string `json:"check"`
	Finding
	fatal bool
}

// Line is the finding on one line.
func (r Result) Line() string {
	if r.Remedy == "" {
		return r.Detail
	}
	return r.Detail + ": " + r.Remedy
}

// Report is the results of a list of checks, in its order.
type Report []Result

// Run makes the checks, one after the other. Once ctx has ended, no other check begins.
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

// Err returns an error of one line when the program cannot start.
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

// Problems returns the results that are not fine and with which the program starts.
func (r Report) Problems() (out []Result) {
	for _, x := range r {
		if x.Level == Warning || x.Level == Error && !x.fatal {
			out = append(out, x)
		}
	}
	return out
}

var styles = map[Level]term.Style{OK: term.Green, Warning: term.Amber, Error: term.Red}

// Print writes a table. A remedy stands below the detail that it is for, so that lines stay short.
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
