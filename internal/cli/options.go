package cli

import (
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"
)

// Exit codes.
const (
	ExitOK     = 0
	ExitDenied = 1 // the flow is denied, a test failed, or a named object does not exist
	ExitError  = 2
)

// errNegative ends a command that succeeded with a negative answer.
var errNegative = errors.New("negative answer")

// options are the options of all commands.
type options struct {
	whom
	patience time.Duration // for each answer of the agent; 0: any
	output   format
	in       io.Reader
	out      io.Writer

	allowProblems bool // in the manifests of a state
	leftOut       int  // problems of these, see whole
}

// requestTimeout is the flag that bounds answers of the agent, as kubectl names it, and answerTime
// its default.
const (
	requestTimeout = "request-timeout"
	answerTime     = time.Minute
)

// patient has a command wait for so long for an answer, unless the command line says how long.
func (o *options) patient(cmd *cobra.Command, d time.Duration) {
	if !cmd.Flags().Changed(requestTimeout) {
		o.patience = d
	}
}
