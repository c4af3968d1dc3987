package config

import (
	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/internal/manifests"
)

// Dev has the settings of development, where everything is embedded.
type Dev struct {
	Manifests     string `koanf:"manifests"`
	AcceptLegacy  bool   `koanf:"accept-legacy"`
	EtcdDir       string `koanf:"etcd-dir"`
	VswitchSocket string `koanf:"vswitch-socket"`
	Once          bool   `koanf:"once"`
}

func devFlags(f *pflag.FlagSet) {
	f.String("manifests", "", "directory of Kubernetes manifests to reflect and to watch")
	f.Bool("accept-legacy", false, "also read policies of extensions/v1beta1 and the annotation that isolates a namespace, as before Kubernetes 1.7")
	f.String("etcd-dir", "", "directory of the embedded etcd; empty: a temporary one")
	f.String("vswitch-socket", "", "also serve the embedded dataplane's VPP binary API on this Unix socket")
	f.Bool("once", false, "print the report and exit")
}

// Reading returns the options for parsing manifests.
func (d Dev) Reading() (opts []manifests.Option) {
	if d.AcceptLegacy {
		opts = append(opts, manifests.AcceptLegacy())
	}
	return opts
}
