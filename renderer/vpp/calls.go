package vpp

import (
	"context"
	"errors"
	"fmt"
	"io"

	govpp "go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/vlib"
	"go.fd.io/govpp/core"
)

// Streams increases the buffers of dump streams; see dumpBuffer.
type Streams struct{ *core.Connection }

// NewStream adds the option to a stream of the connection.
func (s Streams) NewStream(ctx context.Context, options ...govpp.StreamOption) (govpp.Stream, error) {
	return s.Connection.NewStream(ctx, append(options, core.WithReplySize(dumpBuffer))...)
}

// broke reports whether a connection cannot be used after an error of a call. An answer with an
// error value leaves it usable, and so does an error detected before sending. err must be about a
// single call.
func broke(err error) bool {
	var retval govpp.VPPApiError
	return !errors.As(err, &retval) && !errors.Is(err, ErrNotConnected) && !errors.Is(err, ErrIncompatible) && !errors.Is(err, ErrNoCLI)
}

// receiver is the stream of a dump.
type receiver[M any] interface {
	Recv() (M, error)
	Close() error
}

// Drain receives a whole dump before it returns, because GoVPP drops messages that a slow receiver
// does not take.
func Drain[M any, R receiver[M]](s R, err error) ([]M, error) {
	if err != nil {
		return nil, err
	}
	var out []M
	for {
		m, err := s.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			_ = s.Close() // the first error matters
			return nil, err
		}
		out = append(out, m)
	}
}

// ErrNoCLI is returned when the vswitch has no command line.
var ErrNoCLI = errors.New("the vswitch has no command line")

// CLI runs a command line command of the vswitch and returns its output.
func (l *Link) CLI(ctx context.Context, command string) (string, error) {
	m := &vlib.CliInband{Cmd: command}
	if _, err := l.Conn.GetMessageID(m); err != nil {
		return "", fmt.Errorf("%s: %w", command, ErrNoCLI)
	}
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	r, err := vlib.NewServiceClient(l.Conn).CliInband(ctx, m)
	if err != nil {
		return "", fmt.Errorf("%s: %w", command, err)
	}
	return r.Reply, nil
}
