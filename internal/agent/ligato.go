package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/follow"
	"github.com/sluice-net/sluice/plugins/kvstore"
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

// followPublished has the renderer look again whenever somebody else changes what it has
// published, or the store may have lost it, until the context ends.
func (a *Agent) followPublished(ctx context.Context) error {
	return follow.Run(ctx, follow.Config{
		Store: headOnly{a.store}, Prefix: a.node.Ligato.Prefix(), What: "published keys", Log: a.log, Grace: -1,
		Snapshot: func(follow.Snapshot) {
			a.node.Ligato.Invalidate()
			a.node.Plugin.Prompt()
		},
		Deliver: func(entries []model.Entry, _ int64) {
			if a.node.Ligato.Seen(entries) {
				a.node.Plugin.Prompt()
			}
		},
	})
}

// headOnly is a store that is followed from now on: what it has, the renderer reads.
type headOnly struct{ *kvstore.Client }

// List implements follow.Store.
func (s headOnly) List(ctx context.Context, _ string) ([]model.Entry, int64, error) {
	status, err := s.Status(ctx)
	return nil, status.Revision, err
}
