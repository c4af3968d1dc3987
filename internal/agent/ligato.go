package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/ligato"
)

// What --acl-target can be.
const (
	targetGoVPP  = "govpp"
	targetLigato = "ligato"
)

func ligatoFlags(f *pflag.FlagSet) {
	f.String("acl-target", targetGoVPP, "who gets the ACLs: govpp (VPP, by its binary API) or ligato (a ligato vpp-agent v3, by keys in the same etcd)")
	f.String("ligato-label", ligato.DefaultLabel, "microservice label of the vpp-agent")
	f.String("ligato-prefix", ligato.DefaultPrefix, "prefix of the keys of all vpp-agents in etcd")
	f.String("ligato-interface", "", "name that a pod's interface has in the configuration of the vpp-agent when no key in etcd names it, such as tap-{namespace}-{name}; uplinks are --uplink")
}

// The placeholders of --ligato-interface.
const (
	placeNamespace = "{namespace}"
	placeName      = "{name}"
)

// checkTarget checks the settings of who gets the ACLs.
func (c Config) checkTarget() error {
	if !slices.Contains([]string{targetGoVPP, targetLigato, ""}, c.ACLTarget) {
		return fmt.Errorf("--acl-target %q: want govpp or ligato", c.ACLTarget)
	}
	if c.ACLTarget != targetLigato || c.LigatoInterface == "" {
		return nil
	}
	for _, place := range []string{placeNamespace, placeName} {
		if !strings.Contains(c.LigatoInterface, place) {
			return fmt.Errorf("--ligato-interface %q: %s is missing, so different pods would have the same interface", c.LigatoInterface, place)
		}
	}
	return nil
}

// interfacesOf returns the names of a pod's interfaces: those that keys in etcd give it,
// or the one that the template does.
func (a *Agent) interfacesOf(pod api.PodID) []string {
	if names := a.plugs.InterfacesOf(pod); len(names) > 0 || a.cfg.LigatoInterface == "" {
		return names
	}
	return []string{strings.NewReplacer(placeNamespace, pod.Namespace, placeName, pod.Name).Replace(a.cfg.LigatoInterface)}
}

// ligato returns how to publish for a vpp-agent, nil when that is not wanted.
func (a *Agent) ligato(infra renderer.Infra) *ligato.Options {
	if a.cfg.ACLTarget != targetLigato {
		return nil
	}
	return &ligato.Options{
		Log: a.log.With("plugin", "ligato"), Store: a.store, Label: a.cfg.LigatoLabel, Prefix: a.cfg.LigatoPrefix, Uplinks: a.cfg.Uplinks,
		Interfaces: a.interfacesOf, Infra: infra,
	}
}

// How long to wait before the published keys are followed again after that broke.
const (
	minFollowWait = 100 * time.Millisecond
	maxFollowWait = 5 * time.Second
)

// followPublished has the renderer look again whenever somebody else changes what it has
// published, or the store may have lost it, until the context ends.
func (a *Agent) followPublished(ctx context.Context) error {
	wait := minFollowWait
	for {
		began := time.Now()
		err := a.watchPublished(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if time.Since(began) > maxFollowWait {
			wait = minFollowWait // it went well for a while
		}
		a.log.Warn("published keys have to be read again", "error", err, "wait", wait)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
		wait = min(2*wait, maxFollowWait)
	}
}

// watchPublished follows from now on; what changed before that, the renderer reads.
func (a *Agent) watchPublished(ctx context.Context) error {
	s, err := a.store.Status(ctx)
	if err != nil {
		return err
	}
	a.node.Ligato.Invalidate()
	a.node.Plugin.Prompt()
	return a.store.Watch(ctx, a.node.Ligato.Prefix(), s.Revision+1, func(entries []model.Entry, _ int64) {
		if a.node.Ligato.Seen(entries) {
			a.node.Plugin.Prompt()
		}
	})
}
