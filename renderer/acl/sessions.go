package acl

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	govpp "go.fd.io/govpp/api"

	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
	"github.com/sluice-net/sluice/renderer/acl/internal/mirror"
	"github.com/sluice-net/sluice/renderer/vpp"
)

// Established says what becomes of a flow that is open when policy no longer permits
// it. All nodes of a cluster should say the same: a flow has an end on two of them.
type Established uint8

const (
	// Revoke has a flow that is no longer permitted cut: its next packet in the
	// direction that policy decides is denied.
	Revoke Established = iota
	// Keep lets open flows live until they end, or until the vswitch forgets them. Policy decides
	// about new flows only.
	Keep
)

// String returns "revoke" or "keep".
func (e Established) String() string {
	if e == Keep {
		return "keep"
	}
	return "revoke"
}

// UnmarshalText reads what String returns.
func (e *Established) UnmarshalText(text []byte) error {
	switch string(text) {
	case "revoke":
		*e = Revoke
	case "keep":
		*e = Keep
	default:
		return fmt.Errorf("established %q: want revoke or keep", text)
	}
	return nil
}

// openFlows decides what becomes of flows that are open when policy changes, or when the vswitch
// starts.
type openFlows struct {
	Flows
	link  *mirror.Link
	log   *slog.Logger
	until time.Time // end of the grace period; zero: there is none
	owned bool      // areOwned when the last rules were prepared
}

// input returns what the input of pods and uplinks must hold now. With Keep, and in
// grace, every packet of a pod opens the way back: so a flow goes on of which the
// vswitch does not know who opened it, and policy cannot end it.
func (x *openFlows) input() []entries.Entry {
	if x.areOwned() {
		return entries.EverythingOwned()
	}
	return entries.Everything(entries.Reflect)
}

// areOwned reports whether a session of a TCP flow belongs to the side that opened it.
func (x *openFlows) areOwned() bool { return x.Established == Revoke && x.until.IsZero() }

// begin decides when the grace period ends in which pods may continue flows that they opened before
// the vswitch started: it does not know them, and would deny the answers. There is one while the
// vswitch runs for less than grace, if it has no input list yet or that of a grace period: held is
// the digest of the list. The vswitch says for how long it runs, so a restart of the renderer
// neither ends nor prolongs the period. It is called after everything was read.
func (x *openFlows) begin(ctx context.Context, held entries.Digest) error {
	x.until = time.Time{}
	if x.Grace <= 0 || x.Established == Keep {
		return nil
	}
	if held != (entries.Digest{}) && held != entries.DigestOf(entries.Everything(entries.Reflect)) {
		return nil
	}
	out, err := x.setting(ctx, "show clock")
	if err != nil {
		return err
	}
	age, ok := mirror.AgeOf(out)
	if !ok || age >= x.Grace {
		return nil
	}
	x.until = time.Now().Add(x.Grace - age)
	x.link.WakeAt(x.until)
	x.log.Info("the vswitch is young: flows that pods have opened before go on", "age", age.Round(time.Second), "until", x.until)
	return nil
}

// isOver reports whether the grace period has ended, so that the input must change.
func (x *openFlows) isOver() bool { return !x.until.IsZero() && !time.Now().Before(x.until) }

// settle ends a grace period that is over, and reports whether areOwned has changed.
func (x *openFlows) settle() (differs bool) {
	if x.isOver() {
		x.until = time.Time{}
		x.log.Info("the grace of the vswitch's start is over")
	}
	was := x.owned
	x.owned = x.areOwned()
	return x.owned != was
}

// prepareInput decides what the input holds.
func (w *wanted) prepareInput() {
	differs := w.r.flows.settle()
	w.inputDiffers = w.inputDiffers || differs
	w.slots.get(reflectSlot).want = nil // it may have been another one
	w.fixed(reflectSlot, w.r.flows.input())
}

// reclassify is the command that reports whether sessions are looked at again when
// rules change.
func reclassify(on bool) string {
	if on {
		return "set acl-plugin reclassify-sessions 1"
	}
	return "set acl-plugin reclassify-sessions 0"
}

// configure sets how the vswitch treats sessions.
func (x *openFlows) configure(ctx context.Context) error {
	commands := []string{reclassify(x.Established == Revoke)}
	if x.UDPIdle > 0 {
		seconds := (x.UDPIdle + time.Second - 1) / time.Second
		commands = append(commands, fmt.Sprintf("set acl-plugin session timeout udp idle %d", seconds))
	}
	for _, c := range commands {
		if _, err := x.setting(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// setting runs a command about sessions. Rules are enforced without it, too: what the
// vswitch refuses is a warning. Other errors are those of the connection.
func (x *openFlows) setting(ctx context.Context, command string) (string, error) {
	out, err := x.link.CLI(ctx, command)
	var retval govpp.VPPApiError
	if errors.As(err, &retval) || errors.Is(err, vpp.ErrNoCLI) {
		x.log.Warn("established flows may live longer or shorter than they should", "established", x.Established, "error", err)
		return "", nil
	}
	return out, err
}
