package vppport

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"go.fd.io/govpp/adapter"
	"go.fd.io/govpp/adapter/socketclient"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/vpe"
	"go.fd.io/govpp/core"

	"github.com/sluice-net/sluice/renderer/vpp"
)

// Errors of Talk, before there is a connection.
var (
	// ErrAbsent is returned where nothing listens: VPP does not run, and has no interfaces. It
	// comes with ErrUnreachable.
	ErrAbsent      = errors.New("VPP does not run")
	ErrUnreachable = errors.New("VPP cannot be reached")
)

// Client is a connection to VPP. One goroutine uses it at a time.
type Client struct{ conn *core.Connection }

// Timeouts of a conversation with VPP.
const (
	dialTimeout  = 3 * time.Second
	talkTimeout  = 10 * time.Second // of all, once it has begun
	closeTimeout = 2 * time.Second
)

// Talk calls f with a connection to VPP's API socket, which is closed afterwards, and a context
// that ends after talkTimeout. f must not call Talk.
//
// One process talks to VPP at a time, and the others wait: a VPP for which 16 clients end at once
// never looks at anything else again, see maxHosts.
func Talk(ctx context.Context, socket string, f func(context.Context, *Client) error) error {
	lock, err := turn(ctx, socket)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: %w", ErrAbsent, err)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	defer func() { _ = lock.Close() }() // and so unlock it
	ctx, cancel := context.WithTimeout(ctx, talkTimeout)
	defer cancel()
	conn, err := dial(ctx, socket)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	defer disconnect(conn)
	err = f(ctx, &Client{conn})
	var unknown *adapter.UnknownMsgError
	if !errors.As(err, &unknown) {
		return err
	}
	release := "of unknown version"
	if v, asked := vpe.NewServiceClient(conn).ShowVersion(ctx, &vpe.ShowVersion{}); asked == nil {
		release = v.Version
	}
	return fmt.Errorf("VPP %s does not have message %s_%s, or not as this program was built for: %w", release, unknown.MsgName, unknown.MsgCrc, err)
}

// disconnect also ends the connection to a VPP that does not answer.
func disconnect(conn *core.Connection) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		conn.Disconnect()
	}()
	select {
	case <-ended:
	case <-time.After(closeTimeout): // the process ends soon, and the goroutine with it
	}
}

// turn waits until no other process talks to VPP, and locks the folder of its socket.
func turn(ctx context.Context, socket string) (*os.File, error) {
	lock, err := os.Open(filepath.Dir(socket))
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return lock, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) || !pause(ctx) {
			_ = lock.Close() // the first error is the one that matters
			return nil, fmt.Errorf("lock %s, where other commands wait for VPP: %w", lock.Name(), err)
		}
	}
}

// dial connects, within dialTimeout.
func dial(ctx context.Context, socket string) (*core.Connection, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if err := listens(ctx, socket); err != nil {
		return nil, err
	}
	type result struct {
		conn *core.Connection
		err  error
	}
	made := make(chan result, 1)
	go func() {
		conn, err := connect(ctx, socket)
		made <- result{conn, err}
	}()
	select {
	case r := <-made:
		if r.err != nil {
			return nil, fmt.Errorf("socket %s: %w", socket, r.err)
		}
		return r.conn, nil
	case <-ctx.Done(): // the process ends soon, and the goroutine with it
		return nil, fmt.Errorf("socket %s: VPP does not answer: %w", socket, ctx.Err())
	}
}

// listens returns nil where something listens.
func listens(ctx context.Context, socket string) error {
	for {
		err := vpp.CheckSocket(ctx, vpp.APINetwork, socket)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
			return fmt.Errorf("%w: %w", ErrAbsent, err)
		case !errors.Is(err, syscall.EAGAIN), !pause(ctx):
			return err
		}
	}
}

// connect connects, also while many others do: VPP's queue for them is short.
func connect(ctx context.Context, socket string) (*core.Connection, error) {
	for {
		adapter := socketclient.NewVppClient(socket)
		adapter.SetClientName("sluice-cni")
		conn, err := core.Connect(adapter)
		if !errors.Is(err, syscall.EAGAIN) || !pause(ctx) {
			return conn, err
		}
	}
}

// retryEvery is how often it is tried again to connect.
const retryEvery = 10 * time.Millisecond

// pause waits and reports whether the context is still alive.
func pause(ctx context.Context) bool {
	select {
	case <-time.After(retryEvery):
		return true
	case <-ctx.Done():
		return false
	}
}

// Interface is one of VPP.
type Interface struct {
	Index uint32
	Name  string
	Tag   string
	MAC   string
	Up    bool
}

// Interfaces returns all interfaces.
func (c *Client) Interfaces(ctx context.Context) ([]Interface, error) {
	all, err := c.details(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]Interface, len(all))
	for i, d := range all {
		up := d.Flags&interface_types.IF_STATUS_API_FLAG_ADMIN_UP != 0
		out[i] = Interface{uint32(d.SwIfIndex), d.InterfaceName, d.Tag, d.L2Address.String(), up}
	}
	return out, nil
}

func (c *Client) details(ctx context.Context) ([]*interfaces.SwInterfaceDetails, error) {
	all, err := vpp.Drain[*interfaces.SwInterfaceDetails](interfaces.NewServiceClient(vpp.Streams{Connection: c.conn}).SwInterfaceDump(ctx,
		&interfaces.SwInterfaceDump{SwIfIndex: ^interface_types.InterfaceIndex(0)}))
	if err != nil {
		return nil, fmt.Errorf("list VPP's interfaces: %w", err)
	}
	return all, nil
}

// Find returns the interface of an attachment, of whatever kind; false when there is none.
func (c *Client) Find(ctx context.Context, hostIf string) (Interface, bool, error) {
	all, err := c.Interfaces(ctx)
	i := slices.IndexFunc(all, func(n Interface) bool { return n.isOf(hostIf) })
	if err != nil || i < 0 {
		return Interface{}, false, err
	}
	return all[i], true, nil
}

// Tag gives an interface a tag, in the place of the one that it has.
func (c *Client) Tag(ctx context.Context, index uint32, tag string) error {
	_, err := c.interfaces().SwInterfaceTagAddDel(ctx, &interfaces.SwInterfaceTagAddDel{
		IsAdd: tag != "", SwIfIndex: interface_types.InterfaceIndex(index), Tag: tag,
	})
	if err != nil {
		return fmt.Errorf("tag interface %d: %w", index, err)
	}
	return nil
}

// SetUp sets an interface up or down.
func (c *Client) SetUp(ctx context.Context, index uint32, up bool) error {
	q := &interfaces.SwInterfaceSetFlags{SwIfIndex: interface_types.InterfaceIndex(index)}
	if up {
		q.Flags = interface_types.IF_STATUS_API_FLAG_ADMIN_UP
	}
	if _, err := c.interfaces().SwInterfaceSetFlags(ctx, q); err != nil {
		return fmt.Errorf("set interface %d up or down: %w", index, err)
	}
	return nil
}

func (c *Client) interfaces() interfaces.RPCService { return interfaces.NewServiceClient(c.conn) }

// Mine returns the names of attachments of which VPP has anything that was made here, of those that
// begin with a prefix.
func (c *Client) Mine(ctx context.Context, prefix string) (out []string, err error) {
	all, err := c.Interfaces(ctx)
	for _, n := range all {
		_, hostIf, _ := strings.Cut(n.Name, "-")
		if unnamed, _, ok := vpp.ParseSourceTag(n.Tag); ok {
			hostIf = unnamed
		}
		if n.isOf(hostIf) && strings.HasPrefix(hostIf, prefix) {
			out = append(out, hostIf)
		}
	}
	if err != nil {
		return nil, err
	}
	lists, err := c.sources(ctx)
	for hostIf := range lists {
		if strings.HasPrefix(hostIf, prefix) && !slices.Contains(out, hostIf) {
			out = append(out, hostIf)
		}
	}
	return out, err
}
