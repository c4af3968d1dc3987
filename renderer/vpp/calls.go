package vpp

import (
	"context"
	"errors"
	"fmt"
	"io"

	govpp "go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/vlib"
	"go.fd.io/govpp/binapi/vpe"
	"go.fd.io/govpp/core"
)

// Streams makes the streams of dumps hold many messages; see dumpBuffer.
type Streams struct{ *core.Connection }

// NewStream adds the option to the stream of the connection.
func (s Streams) NewStream(ctx context.Context, options ...govpp.StreamOption) (govpp.Stream, error) {
	return s.Connection.NewStream(ctx, append(options, core.WithReplySize(dumpBuffer))...)
}

// broke reports whether a connection cannot be used after an error of a call. An answer with
// a return value leaves it usable; so does an error that was found without it. An error must
// not tell of two calls.
func broke(err error) bool {
	var retval govpp.VPPApiError
	return !errors.As(err, &retval) && !errors.Is(err, ErrNotConnected) && !errors.Is(err, ErrIncompatible) && !errors.Is(err, ErrNoCLI)
}

// receiver is the part of a dump's stream that its messages come from.
type receiver[M any] interface {
	Recv() (M, error)
	Close() error
}

// Drain receives a whole dump before anything of it is looked at, because GoVPP
// loses what a slow receiver does not take.
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
			_ = s.Close() // the first error is the one that matters
			return nil, err
		}
		out = append(out, m)
	}
}

// Version asks for the version of the vswitch and checks that it has all messages that are
// needed, which part of VPP brings.
func (l *Link) Version(ctx context.Context, needed []govpp.Message, part string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	version := "of unknown version"
	if r, err := vpe.NewServiceClient(l.Conn).ShowVersion(ctx, &vpe.ShowVersion{}); err == nil {
		version = r.Version
	} else if ctx.Err() != nil {
		return "", fmt.Errorf("ask the vswitch for its version: %w", err)
	}
	for _, m := range needed {
		if _, err := l.Conn.GetMessageID(m); err != nil {
			return version, fmt.Errorf("%w: vpp %s has no message %s_%s; is %s loaded?",
				ErrIncompatible, version, m.GetMessageName(), m.GetCrcString(), part)
		}
	}
	return version, nil
}

// ErrNoCLI is returned where the vswitch has no command line.
var ErrNoCLI = errors.New("the vswitch has no command line")

// CLI runs a command of the vswitch's command line and returns what it prints.
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
