package cli

import (
	"errors"
	"io"
)

// Exit codes.
const (
	ExitOK     = 0
	ExitDenied = 1 // the flow is denied, a test failed, or what is named is not there
	ExitError  = 2
)

// errNegative ends a command that worked and whose answer is no.
var errNegative = errors.New("negative answer")

// options are what every command shares.
type options struct {
	socket string
	output format
	in     io.Reader
	out    io.Writer
}

func (o *options) client() *client { return newClient(o.socket) }
