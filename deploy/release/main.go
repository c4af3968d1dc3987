// Command release makes of binaries what a release has: archives, packages for Debian and Red Hat,
// container images, lists of what is in them, and checksums. "make release" builds the binaries and
// calls it.
//
// Equal binaries give equal bytes: no file has the time of its making, but that of the release.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// release is what is released, and where it goes.
type release struct {
	version string
	time    time.Time // of every file in what is released
	root    string    // of the repository
	bin     string    // linux_amd64/sluice-agent and so on
	plugins string    // 25.10/sluice_plugin.so and so on; "": there are none
	out     string
	arches  []string // as Go names them
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	r := release{}
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.StringVar(&r.version, "version", "", "version of the release, as the binaries have it")
	epoch := flags.Int64("epoch", 0, "time of the release, in seconds since 1970")
	flags.StringVar(&r.root, "root", "../..", "top of the repository")
	flags.StringVar(&r.bin, "bin", "", "directory with linux_amd64/ and so on, which hold the binaries")
	flags.StringVar(&r.plugins, "plugins", "", "directory with 25.10/sluice_plugin.so and so on, the plugins for releases of VPP")
	flags.StringVar(&r.out, "out", "", "directory that gets what is released")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if r.version == "" || r.bin == "" || r.out == "" || flags.NArg() > 0 {
		return errors.New("-version, -bin and -out are needed, and nothing else")
	}
	r.time = time.Unix(*epoch, 0).UTC()
	return r.make()
}

// make makes everything.
func (r release) make() error {
	folders, err := filepath.Glob(filepath.Join(r.bin, "linux_*"))
	if err != nil {
		return err
	}
	for _, folder := range folders {
		r.arches = append(r.arches, strings.TrimPrefix(filepath.Base(folder), "linux_"))
	}
	if len(r.arches) == 0 {
		return fmt.Errorf("there is no linux_* in %s", r.bin)
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	manuals, err := r.manuals()
	if err != nil {
		return fmt.Errorf("manuals: %w", err)
	}
	for _, arch := range r.arches {
		if err := r.forArch(arch, manuals); err != nil {
			return fmt.Errorf("%s: %w", arch, err)
		}
	}
	if err := r.vppPlugins(); err != nil {
		return fmt.Errorf("plugins for VPP: %w", err)
	}
	if err := r.images(); err != nil {
		return fmt.Errorf("images: %w", err)
	}
	if err := r.chart(); err != nil {
		return fmt.Errorf("chart: %w", err)
	}
	return r.checksums()
}

// forArch makes what holds binaries of one architecture.
func (r release) forArch(arch string, manuals []file) error {
	licences, err := r.licences(arch)
	if err != nil {
		return fmt.Errorf("licences: %w", err)
	}
	if err := r.archive(arch, manuals, licences); err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	for _, p := range packages {
		if err := r.packages(p, arch, manuals, licences); err != nil {
			return fmt.Errorf("package %s: %w", p.name, err)
		}
	}
	for _, program := range programs {
		if err := r.bom(program, arch); err != nil {
			return fmt.Errorf("bill of materials of %s: %w", program, err)
		}
	}
	return nil
}

// programs are the binaries of a release.
var programs = []string{"sluice-agent", "sluice-cni", "sluice-dev", "sluice-ksr", "sluice-neutron", "sluicectl"}

func (r release) binary(program, arch string) string {
	return filepath.Join(r.bin, "linux_"+arch, program)
}

// file is one file of an archive or a package.
type file struct {
	path string
	mode os.FileMode
	body []byte
}

// read reads a file of the repository as a file of a release.
func (r release) read(name, path string) (file, error) {
	b, err := os.ReadFile(filepath.Join(r.root, name))
	return file{path: path, mode: 0o644, body: b}, err
}

// semantic is the version as Helm has it; what is no release is older than every release.
func (r release) semantic() string {
	if number := r.number(); !strings.Contains(number, "~") {
		return number
	}
	return "0.0.0-" + strings.TrimPrefix(r.number(), "0.0.0~")
}

// number is the version as packages have it: "v1.2.3" is 1.2.3, and what is no release is
// 0.0.0~COMMIT, which is older than every release.
func (r release) number() string {
	if v, ok := strings.CutPrefix(r.version, "v"); ok && !strings.ContainsAny(v, "-~") {
		return v
	}
	return "0.0.0~" + strings.ReplaceAll(strings.TrimPrefix(r.version, "v"), "-", ".")
}
