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

// openFlows decides what happens to flows that are open when policy changes or when the vswitch
// starts.
type openFlows struct {
	Flows
	link  *mirror.Link
	log   *slog.Logger
	until time.Time // end of the grace period; zero without one
	owned bool      // areOwned when rules were last prepared
}

// input returns the desired input entries of pods and uplinks. With Keep, and during the grace
// period, every packet of a pod permits replies. A flow whose opener the vswitch does not know then
// continues, and policy cannot end it.
func (x *openFlows) input() []entries.Entry {
	if x.areOwned() {
		return entries.EverythingOwned()
	}
	return entries.Everything(entries.Reflect)
}

// areOwned reports whether the session of a TCP flow belongs to the side that opened it.
func (x *openFlows) areOwned() bool { return x.Established == Revoke && x.until.IsZero() }

// begin determines the end of the grace period, in which pods may continue flows that they opened
// before the vswitch started. The vswitch does not know these flows and would deny the replies.
// There is a grace period if the vswitch has been running for less than Grace, and has no input
// list yet or that of a grace period; held is the digest of the list. The vswitch reports its
// uptime, so a restart of the renderer neither ends nor extends the period. begin is called after a
// full read.
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
	x.log.Info("the vswitch has restarted; flows that pods opened before may continue", "age", age.Round(time.Second), "until", x.until)
	return nil
}

// isOver reports whether the grace period has ended, so that the input must change.
func (x *openFlows) isOver() bool { return !x.until.IsZero() && !time.Now().Before(x.until) }

// settle ends an expired grace period, and reports whether areOwned has changed.
func (x *openFlows) settle() (differs bool) {
	if x.isOver() {
		x.until = time.Time{}
		x.log.Info("the grace period after the start of the vswitch is over")
	}
	was := x.owned
	x.owned = x.areOwned()
	return x.owned != was
}

// configure configures the session handling of the vswitch.
func (x *openFlows) configure(ctx context.Context) error {
	commands := []string{mirror.Reclassify(x.Established == Revoke)}
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

// setting runs a session command. Rules are enforced without it, so a refusal by the vswitch is
// only a warning. Other errors come from the connection.
func (x *openFlows) setting(ctx context.Context, command string) (string, error) {
	out, err := x.link.CLI(ctx, command)
	var retval govpp.VPPApiError
	if errors.As(err, &retval) || errors.Is(err, vpp.ErrNoCLI) {
		x.log.Warn("could not configure sessions; established flows may live longer or shorter than they should", "established", x.Established, "error", err)
		return "", nil
	}
	return out, err
}
