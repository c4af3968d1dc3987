package main

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/files"
)

// vppReleases are the releases of VPP that have a package of the plugin, with the release after each.
var vppReleases = []struct{ number, next string }{{"25.10", "26.02"}, {"26.02", "26.06"}, {"26.06", "26.10"}}

// machines are the architectures of plugins: what Go calls them, and where Debian has their libraries.
var machines = map[elf.Machine]struct{ arch, triplet string }{
	elf.EM_X86_64:  {"amd64", "x86_64-linux-gnu"},
	elf.EM_AARCH64: {"arm64", "aarch64-linux-gnu"},
}

// vppPlugins makes a package of the plugin for every release of VPP that it was built for, and says
// for which it was not.
func (r release) vppPlugins() error {
	var missing []string
	for _, vpp := range vppReleases {
		if r.plugins == "" {
			missing = append(missing, vpp.number)
			continue
		}
		plugin := filepath.Join(r.plugins, vpp.number, "sluice_plugin.so")
		file, err := elf.Open(plugin)
		if errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, vpp.number)
			continue
		}
		if err != nil {
			return err
		}
		machine, known := machines[file.Machine]
		if err := file.Close(); err != nil {
			return err
		}
		if !known {
			return fmt.Errorf("%s is for %v, which no package is made for", plugin, file.Machine)
		}
		p := pkg{name: "sluice-vpp-plugin-" + vpp.number, description: "Judges packets in VPP " + vpp.number + " by the network policy of Sluice"}
		for format, dir := range map[string]string{"deb": "/usr/lib/" + machine.triplet, "rpm": "/usr/lib64"} {
			with := nfpm.Overridables{Contents: files.Contents{r.content(plugin, dir+"/vpp_plugins/sluice_plugin.so", files.TypeFile, 0o644)}}
			for _, name := range []string{"LICENSE", "NOTICE"} {
				to := "/usr/share/doc/" + p.name + "/" + strings.Replace(name, "LICENSE", "copyright", 1)
				with.Contents = append(with.Contents, r.content(filepath.Join(r.root, name), to, files.TypeFile, 0o644))
			}
			// All have the same file, so that there is one at a time; and a VPP loads only its own.
			with.Provides, with.Conflicts = []string{"sluice-vpp-plugin"}, []string{"sluice-vpp-plugin"}
			with.Depends = []string{"vpp (>= " + vpp.number + ")", "vpp (<< " + vpp.next + ")"}
			if format == "rpm" {
				with.Depends = []string{"vpp >= " + vpp.number, "vpp < " + vpp.next}
			}
			if err := r.pack(p, machine.arch, format, with); err != nil {
				return fmt.Errorf("%s: %s: %w", p.name, format, err)
			}
		}
	}
	if len(missing) > 0 {
		fmt.Printf("left out: packages of the plugin for VPP %s: VPP_SRCS names no built tree of it\n", strings.Join(missing, ", "))
	}
	return nil
}
