package acl

import (
	"context"
	"errors"
	"fmt"
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

// input returns what the input of pods and uplinks must hold now. With Keep, and in
// grace, every packet of a pod opens the way back: so a flow goes on of which the
// vswitch does not know who opened it, and policy cannot end it.
func (r *Renderer) input() []entries.Entry {
	if r.ownsSessions() {
		return entries.EverythingOwned()
	}
	return entries.Everything(entries.Reflect)
}

// ownsSessions reports whether a session of a TCP flow belongs to the side that opened it.
func (r *Renderer) ownsSessions() bool { return r.options.Established == Revoke && r.grace.IsZero() }

// beginGrace decides, after everything was read, until when pods may go on with flows
// that they had opened before the vswitch was started: it does not know them, and
// would deny the answers. It is so when the vswitch is younger than the grace and
// has no input list yet, or that of a grace. How old the vswitch is says itself, so
// that a restart of the renderer neither ends nor prolongs a grace.
func (r *Renderer) beginGrace(ctx context.Context) error {
	r.grace = time.Time{}
	if r.options.Grace <= 0 || r.options.Established == Keep {
		return nil
	}
	if s := r.slots.byName[reflectSlot]; s != nil && r.mirror.ACLs[s.indexes[0]].Piece.Digest != entries.DigestOf(entries.Everything(entries.Reflect)) {
		return nil
	}
	out, err := r.setting(ctx, "show clock")
	if err != nil {
		return err
	}
	age, ok := mirror.AgeOf(out)
	if !ok || age >= r.options.Grace {
		return nil
	}
	r.grace = time.Now().Add(r.options.Grace - age)
	r.link.WakeAt(r.grace)
	r.log.Info("the vswitch is young: flows that pods have opened before go on", "age", age.Round(time.Second), "until", r.grace)
	return nil
}

// graceIsOver says whether the input must become what it is otherwise.
func (r *Renderer) graceIsOver() bool { return !r.grace.IsZero() && !time.Now().Before(r.grace) }

// prepareInput decides what the input holds.
func (w *wanted) prepareInput() {
	if w.r.graceIsOver() {
		w.r.grace = time.Time{}
		w.r.log.Info("the grace of the vswitch's start is over")
	}
	owns := w.r.ownsSessions()
	w.inputDiffers = w.inputDiffers || owns != w.r.owns
	w.r.owns = owns
	w.slots.get(reflectSlot).want = nil // it may have been another one
	w.fixed(reflectSlot, w.r.input())
}

// reclassify is the command that says whether sessions are looked at again when
// rules change.
func reclassify(on bool) string {
	if on {
		return "set acl-plugin reclassify-sessions 1"
	}
	return "set acl-plugin reclassify-sessions 0"
}

// setSessions tells the vswitch how to treat sessions.
func (r *Renderer) setSessions(ctx context.Context) error {
	commands := []string{reclassify(r.options.Established == Revoke)}
	if r.options.UDPIdle > 0 {
		seconds := (r.options.UDPIdle + time.Second - 1) / time.Second
		commands = append(commands, fmt.Sprintf("set acl-plugin session timeout udp idle %d", seconds))
	}
	for _, c := range commands {
		if _, err := r.setting(ctx, c); err != nil {
			return err
		}
	}
	return r.memory.StartSessions(ctx)
}

// setting runs a command about sessions. Rules are enforced without it, too: what the
// vswitch refuses is a warning. Other errors are those of the connection.
func (r *Renderer) setting(ctx context.Context, command string) (string, error) {
	out, err := r.link.CLI(ctx, command)
	var retval govpp.VPPApiError
	if errors.As(err, &retval) || errors.Is(err, vpp.ErrNoCLI) {
		r.log.Warn("established flows may live longer or shorter than they should", "established", r.options.Established, "error", err)
		return "", nil
	}
	return out, err
}
