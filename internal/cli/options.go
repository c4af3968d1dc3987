package cli

import (
	"errors"
	"io"
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
	socket string
	output format
	in     io.Reader
	out    io.Writer
}

func (o *options) client() *client { return newClient(o.socket) }
