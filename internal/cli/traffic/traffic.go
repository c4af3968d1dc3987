// Package traffic has the commands of sluicectl about packets: their verdicts as they are made, and
// which workloads send or drop most.
package traffic

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/internal/lib/term"
)

// Agent is an agent that is asked.
type Agent interface {
	// Get asks for a path, and decodes the answer.
	Get(ctx context.Context, path string, out any) error
	// Post asks a question in JSON, and decodes the answer.
	Post(ctx context.Context, path string, in, out any) error
	// Stream asks a question whose answers come as long as they are wanted. It ends when f returns
	// an error, which is returned, or when the agent ends the answer, which is nil if last is set.
	// It calls begun once answers may come.
	Stream(ctx context.Context, path string, question any, last bool, begun func(), f func(json.RawMessage) error) error
	// IsGone reports whether an error is that of an agent that does not run, or has ended.
	IsGone(err error) bool
	// NodeName is the node of an agent of a cluster; empty for that of a socket.
	NodeName() string
}

// Shell is what the commands need of the program.
type Shell struct {
	// Agents returns the agents that are asked, and Ask asks all of them, by several goroutines. Whom Ask
	// leaves out because they do not answer is reported at the end.
	Agents func(ctx context.Context) ([]Agent, error)
	Ask    func(ctx context.Context, ask func(context.Context, Agent) error) error
	// SayMissed says whom Ask left out, and reports whether these are others than before.
	SayMissed func() (others bool)
	// Lose says that the command goes on without an agent.
	Lose func(a Agent, err error)
	Out  io.Writer
	// ErrOut gets remarks that are no output.
	ErrOut io.Writer
	// Patience is how long an agent that has ended while it was followed is asked again.
	Patience time.Duration
	// Print writes a value as --output asks; for people it calls table.
	Print func(value any, table func(w *term.Writer)) error
	// Lines writes a value on one line if --output is JSON, as one document of a stream if it is
	// YAML. It is false where --output is a table.
	Lines func(value any) (written bool, err error)
	// Wide reports whether tables may be wide.
	Wide func() bool
	// Pods completes names of pods, in a namespace if one is given.
	Pods func(cmd *cobra.Command, namespace string) ([]string, cobra.ShellCompDirective)
}
