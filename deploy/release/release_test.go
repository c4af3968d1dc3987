package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/sluice-net/sluice/internal/agent"
	"github.com/sluice-net/sluice/internal/reflector"
)

const (
	root    = "../.."
	version = "v1.2.3"
)

// dist is where the release is made that the tests read.
var dist string

// said is what making it printed.
var said string

// releases makes it, once.
var releases = sync.OnceValue(func() error { return makeRelease(dist) })

func TestMain(m *testing.M) {
	var err error
	if dist, err = os.MkdirTemp("", "release"); err != nil {
		log.Fatal(err)
	}
	code := m.Run()
	_ = os.RemoveAll(dist) // it is in the temporary directory
	os.Exit(code)
}

// makeRelease is what a user calls, with further settings in the environment.
func makeRelease(dir string, env ...string) error {
	cmd := exec.Command("make", "-C", root, "release", "VERSION="+version, "EPOCH=1700000000", "DIST="+dir)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	if dir == dist {
		said = string(out)
	}
	return nil
}

func released(t *testing.T) string {
	t.Helper()
	if err := releases(); err != nil {
		t.Fatal(err)
	}
	return dist
}

// output runs a program; the test is skipped where the machine does not have it.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skip(err)
	}
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// TestReleaseIsReproducible makes a release again, with a cache of its own, so that everything is
// compiled again.
func TestReleaseIsReproducible(t *testing.T) {
	again := t.TempDir()
	if err := makeRelease(again, "GOCACHE="+t.TempDir(), "TZ=Asia/Tokyo", "XDG_RUNTIME_DIR=/elsewhere"); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(filepath.Join(released(t), "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(again, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, got) {
		t.Errorf("two releases differ:\n%s\n%s", want, got)
	}
}

func TestChecksumsNameEveryFile(t *testing.T) {
	dir := released(t)
	sums, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "bin" && e.Name() != "SHA256SUMS" && !strings.Contains(string(sums), "  "+e.Name()+"\n") {
			t.Errorf("%s has no checksum", e.Name())
		}
	}
	output(t, "sh", "-c", "cd "+dir+" && sha256sum --check --strict SHA256SUMS")
}

func TestArchiveHoldsProgramsThatRun(t *testing.T) {
	top := filepath.Join(unpackGzip(t, "sluice_1.2.3_linux_"+runtime.GOARCH+".tar.gz"), "sluice_1.2.3_linux_"+runtime.GOARCH)
	for _, program := range []string{"sluice-agent", "sluice-dev", "sluice-ksr", "sluice-neutron", "sluicectl"} {
		if got := output(t, filepath.Join(top, "usr/bin", program), "version"); !strings.HasPrefix(got, "sluice "+version+" ") {
			t.Errorf("%s version: %s", program, got)
		}
	}
	for _, name := range []string{
		"LICENSE", "NOTICE", "LICENSES", "README.md", "CHANGELOG.md", "etc/sluice/agent.yaml", "systemd/sluice-agent.service",
		"usr/share/man/man8/sluice-agent-run.8.gz", "usr/share/man/man1/sluicectl-explain.1.gz", "usr/share/bash-completion/completions/sluicectl",
	} {
		if b, err := os.ReadFile(filepath.Join(top, name)); err != nil || len(b) == 0 {
			t.Errorf("%s: %d bytes, %v", name, len(b), err)
		}
	}
}

// unpackGzip unpacks a file of the release.
func unpackGzip(t *testing.T, name string) string {
	t.Helper()
	f, err := os.Open(filepath.Join(released(t), name))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	return unpack(t, z)
}

// unpack writes what a tar file holds to a new directory.
func unpack(t *testing.T, r io.Reader) string {
	t.Helper()
	dir := t.TempDir()
	for files := tar.NewReader(r); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(dir, h.Name)
		if !filepath.IsLocal(h.Name) {
			t.Fatalf("%q leads out", h.Name)
		}
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(name, 0o755)
		} else {
			b, readErr := io.ReadAll(files)
			err = errors.Join(readErr, os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, b, h.FileInfo().Mode()))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestArchiveOfOtherArchitectureRunsEmulated(t *testing.T) {
	arch, emulator := "arm64", "qemu-aarch64-static"
	if runtime.GOARCH == arch {
		arch, emulator = "amd64", "qemu-x86_64-static"
	}
	for _, program := range []string{"sluice-agent", "sluice-dev", "sluice-ksr", "sluice-neutron", "sluicectl"} {
		if got := output(t, emulator, filepath.Join(released(t), "bin", "linux_"+arch, program), "version"); !strings.HasPrefix(got, "sluice "+version+" ") {
			t.Errorf("%s version: %s", program, got)
		}
	}
}

// inPackages are lines of listings: mode, path.
var inPackages = map[string][]string{
	"sluice-agent": {"-rwxr-xr-x /usr/bin/sluice-agent", "-rwxr-xr-x /usr/bin/sluice-cni", "-rw-r--r-- /usr/lib/systemd/system/sluice-agent.service",
		"-rw-r----- /etc/sluice/agent.yaml", "-rw-r--r-- /usr/share/man/man8/sluice-agent.8.gz", "-rw-r--r-- /usr/share/doc/sluice-agent/copyright", "-rw-r--r-- /usr/share/doc/sluice-agent/LICENSES"},
	"sluice-dev": {"-rwxr-xr-x /usr/bin/sluice-dev"},
	"sluice-ksr": {"-rwxr-xr-x /usr/bin/sluice-ksr", "-rw-r--r-- /usr/lib/systemd/system/sluice-ksr.service", "-rw-r----- /etc/sluice/ksr.yaml"},
	"sluice-neutron": {"-rwxr-xr-x /usr/bin/sluice-neutron", "-rw-r--r-- /usr/lib/systemd/system/sluice-neutron.service", "-rw-r----- /etc/sluice/neutron.yaml",
		"-rw-r--r-- /usr/share/man/man8/sluice-neutron.8.gz"},
	"sluicectl": {"-rwxr-xr-x /usr/bin/sluicectl", "-rw-r--r-- /usr/share/man/man1/sluicectl.1.gz", "-rw-r--r-- /usr/share/zsh/vendor-completions/_sluicectl"},
}

func TestDebianPackages(t *testing.T) {
	for name, want := range inPackages {
		for _, arch := range []string{"amd64", "arm64"} {
			path := filepath.Join(released(t), name+"_1.2.3-1_"+arch+".deb")
			var lines []string
			for line := range strings.Lines(output(t, "dpkg-deb", "--contents", path)) {
				f := strings.Fields(line)
				if f[1] != "root/root" {
					t.Errorf("%s: %s", path, line)
				}
				lines = append(lines, f[0]+" "+strings.TrimPrefix(f[len(f)-1], "."))
			}
			wantLines(t, path, lines, want)
			fields := output(t, "dpkg-deb", "--field", path)
			if !strings.Contains(fields, "Architecture: "+arch+"\n") || !strings.Contains(fields, "Version: 1.2.3-1\n") {
				t.Errorf("%s: %s", path, fields)
			}
		}
	}
	control := output(t, "sh", "-c", "dpkg-deb --ctrl-tarfile "+filepath.Join(released(t), "sluice-agent_1.2.3-1_amd64.deb")+" | tar --extract --to-stdout ./conffiles")
	if control != "/etc/sluice/agent.yaml\n" {
		t.Errorf("settings that an upgrade keeps: %q", control)
	}
}

func TestRPMPackages(t *testing.T) {
	for name, want := range inPackages {
		for _, arch := range []string{"x86_64", "aarch64"} {
			path := filepath.Join(released(t), name+"-1.2.3-1."+arch+".rpm")
			out := output(t, "rpm", "--query", "--package", "--queryformat", "[%{FILEMODES:perms} %{FILENAMES}\n]", path)
			wantLines(t, path, strings.Split(out, "\n"), want)
		}
	}
}

// TestPluginPackages reads the packages of the plugin back: one for each tree of VPP in VPP_SRCS, that
// depends on its release and has the plugin that says so. Without trees they are left out, and the
// release says it.
func TestPluginPackages(t *testing.T) {
	dir := released(t)
	built, err := filepath.Glob(filepath.Join(dir, "bin", "vpp", "*", "sluice_plugin.so"))
	if err != nil {
		t.Fatal(err)
	}
	if want := len(strings.Fields(os.Getenv("VPP_SRCS"))); len(built) != want {
		t.Errorf("the plugin was built %d times, want %d", len(built), want)
	}
	debs, err := filepath.Glob(filepath.Join(dir, "sluice-vpp-plugin-*_1.2.3-1_*.deb"))
	if err != nil || len(debs) != len(built) {
		t.Errorf("%d packages of %d plugins: %v, %v", len(debs), len(built), debs, err)
	}
	for _, vpp := range vppReleases {
		where := filepath.Join(dir, "bin", "vpp", vpp.number, "sluice_plugin.so")
		plugin, err := os.ReadFile(where)
		if errors.Is(err, os.ErrNotExist) {
			if !strings.Contains(said, vpp.number) || !strings.Contains(said, "left out: packages of the plugin for VPP ") {
				t.Errorf("the release does not say that the plugin for %s is left out:\n%s", vpp.number, said)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(plugin, append([]byte(vpp.number), 0)) {
			t.Errorf("the plugin for %s does not say so", vpp.number)
		}
		for machine, m := range machines {
			deb := filepath.Join(dir, "sluice-vpp-plugin-"+vpp.number+"_1.2.3-1_"+m.arch+".deb")
			if _, err := os.Stat(deb); err != nil {
				continue // of another machine than this one
			}
			fields := output(t, "dpkg-deb", "--field", deb)
			for _, want := range []string{"Depends: vpp (>= " + vpp.number + "), vpp (<< " + vpp.next + ")\n", "Provides: sluice-vpp-plugin\n", "Conflicts: sluice-vpp-plugin\n", "Architecture: " + m.arch + "\n"} {
				if !strings.Contains(fields, want) {
					t.Errorf("%s has no %q in\n%s", deb, want, fields)
				}
			}
			packed := output(t, "sh", "-c", "dpkg-deb --fsys-tarfile "+deb+" | tar --extract --to-stdout ./usr/lib/"+m.triplet+"/vpp_plugins/sluice_plugin.so")
			if packed != string(plugin) {
				t.Errorf("%v: %s has another plugin than was built", machine, deb)
			}
			rpm := filepath.Join(dir, "sluice-vpp-plugin-"+vpp.number+"-1.2.3-1."+strings.NewReplacer("amd64", "x86_64", "arm64", "aarch64").Replace(m.arch)+".rpm")
			wantLines(t, rpm, strings.Split(output(t, "rpm", "--query", "--package", "--queryformat", "[%{FILEMODES:perms} %{FILENAMES}\n][%{REQUIRENAME} %{REQUIREFLAGS:depflags} %{REQUIREVERSION}\n]", rpm), "\n"),
				[]string{"-rw-r--r-- /usr/lib64/vpp_plugins/sluice_plugin.so", "vpp >=  " + vpp.number, "vpp <  " + vpp.next})
		}
	}
}

func wantLines(t *testing.T, where string, lines, want []string) {
	t.Helper()
	for _, w := range want {
		if !slices.Contains(lines, w) {
			t.Errorf("%s: there is no %q among\n%s", where, w, strings.Join(lines, "\n"))
		}
	}
}

// TestImagesAreTakenByContainerd under the names that a kubelet looks for.
func TestImagesAreTakenByContainerd(t *testing.T) {
	if _, err := exec.LookPath("containerd"); err != nil || os.Geteuid() != 0 {
		t.Skip("needs containerd, and root")
	}
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	settings := fmt.Sprintf("version = 2\nroot = %q\nstate = %q\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n[grpc]\naddress = %q\n",
		filepath.Join(dir, "root"), filepath.Join(dir, "state"), socket)
	if err := os.WriteFile(filepath.Join(dir, "config.toml"), []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	daemon := exec.Command("containerd", "--config", filepath.Join(dir, "config.toml"))
	var log bytes.Buffer
	daemon.Stdout, daemon.Stderr = &log, &log
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = daemon.Process.Signal(syscall.SIGTERM)
		_ = daemon.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	for _, i := range images {
		output(t, "ctr", "--address", socket, "--connect-timeout", "1m", "images", "import", filepath.Join(released(t), i.name+"_1.2.3_oci.tar"))
	}
	got := strings.Fields(output(t, "ctr", "--address", socket, "images", "list", "--quiet"))
	var want []string
	for _, i := range images {
		want = append(want, "docker.io/library/"+i.name+":"+version)
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("containerd has %v, want %v", got, want)
	}
}

// dockerfileTarget returns the lines of the Dockerfile that make an image.
func dockerfileTarget(t *testing.T, dockerfile, title string) string {
	t.Helper()
	for target := range strings.SplitSeq(dockerfile, "\nFROM ") {
		if strings.Contains(target, `image.title="`+title+`"`) {
			return target + "\n"
		}
	}
	t.Fatalf("the Dockerfile makes no image %s", title)
	return ""
}

// TestImages reads every image back, compares it with the target of the Dockerfile, and runs it in
// its own file system.
func TestImages(t *testing.T) {
	dockerfile, err := os.ReadFile(filepath.Join(root, "docker", "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range images {
		t.Run(i.name, func(t *testing.T) {
			f, err := os.Open(filepath.Join(released(t), i.name+"_1.2.3_oci.tar"))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = f.Close() }()
			top, err := layout.ImageIndexFromPath(unpack(t, f))
			if err != nil {
				t.Fatal(err)
			}
			if err := validate.Index(top); err != nil {
				t.Error(err)
			}
			manifest, err := top.IndexManifest()
			if err != nil || len(manifest.Manifests) != 1 {
				t.Fatalf("%v, %v: want one image for all architectures", manifest, err)
			}
			if got := manifest.Manifests[0].Annotations["org.opencontainers.image.ref.name"]; got != i.name+":"+version {
				t.Errorf("the image is called %q", got)
			}
			all, err := top.ImageIndex(manifest.Manifests[0].Digest)
			if err != nil {
				t.Fatal(err)
			}
			list, err := all.IndexManifest()
			if err != nil {
				t.Fatal(err)
			}
			var arches []string
			for _, m := range list.Manifests {
				arches = append(arches, m.Platform.Architecture)
				one, err := all.Image(m.Digest)
				if err != nil {
					t.Fatal(err)
				}
				config, err := one.ConfigFile()
				if err != nil {
					t.Fatal(err)
				}
				c := config.Config
				lines := []string{"USER " + c.User, `ENTRYPOINT ["` + c.Entrypoint[0] + `"]`, c.Labels["org.opencontainers.image.description"]}
				for _, e := range c.Env[1:] { // behind PATH, which Docker sets
					lines = append(lines, "ENV "+e)
				}
				for _, program := range i.programs {
					lines = append(lines, "/out/"+program+" /usr/bin/")
				}
				target := dockerfileTarget(t, string(dockerfile), i.name)
				for _, line := range lines {
					if !strings.Contains(target, line) {
						t.Errorf("the target of the Dockerfile does not say %q", line)
					}
				}
				if strings.Contains(target, "ca-certificates") != i.authorities || strings.Count(target, "\nENV ") != len(c.Env)-1 || strings.Count(target, " /usr/bin/\n") != len(i.programs) {
					t.Errorf("the image is not what the target of the Dockerfile is:\n%s", target)
				}
				if m.Platform.Architecture == runtime.GOARCH && os.Geteuid() == 0 {
					files := mutate.Extract(one)
					dir := unpack(t, files)
					_ = files.Close()
					if got := output(t, "chroot", "--userspec=65532:65532", dir, c.Entrypoint[0], "version"); !strings.HasPrefix(got, "sluice "+version+" ") {
						t.Errorf("the image says %q", got)
					}
				}
			}
			slices.Sort(arches)
			if !slices.Equal(arches, []string{"amd64", "arm64"}) {
				t.Errorf("there are images for %v", arches)
			}
		})
	}
}

func TestUnitsAreValid(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"sluice-agent", "sluice-ksr", "sluice-neutron"} {
		text, err := os.ReadFile(filepath.Join(root, "deploy", "systemd", name+".service"))
		if err != nil {
			t.Fatal(err)
		}
		// systemd looks for the programs where packages put them.
		unit := strings.ReplaceAll(string(text), "/usr/bin/"+name, filepath.Join(released(t), "bin", "linux_"+runtime.GOARCH, name))
		path := filepath.Join(dir, name+".service")
		if err := os.WriteFile(path, []byte(unit), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := output(t, "systemd-analyze", "verify", "--man=no", path); got != "" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// TestSettingsFilesNameSettings that exist, those in comments included.
func TestSettingsFilesNameSettings(t *testing.T) {
	run, _, err := agent.NewCommand(io.Discard, io.Discard).Find([]string{"run"})
	if err != nil {
		t.Fatal(err)
	}
	for name, flags := range map[string]*pflag.FlagSet{"agent.yaml": run.Flags(), "ksr.yaml": reflector.NewCommand(io.Discard).Flags(), "neutron.yaml": agent.NewNeutronCommand(io.Discard).Flags()} {
		text, err := os.ReadFile(filepath.Join(root, "deploy", "systemd", name))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "# ") || strings.TrimSpace(line) == "" {
				continue
			}
			var setting map[string]any
			if err := yaml.Unmarshal([]byte(strings.TrimPrefix(line, "#")), &setting); err != nil || len(setting) != 1 {
				t.Errorf("%s: %q is no setting: %v", name, line, err)
			}
			for key := range setting {
				if flags.Lookup(key) == nil {
					t.Errorf("%s: there is no setting %s", name, key)
				}
			}
		}
	}
}

func TestChartHasVersionOfRelease(t *testing.T) {
	dir := unpackGzip(t, "sluice-1.2.3.tgz")
	for name, want := range map[string]string{"Chart.yaml": "\nversion: 1.2.3\nappVersion: \"v1.2.3\"\n", "monitoring/prometheusrule.yaml": "SluiceAgentDown", "templates/agent.yaml": "DaemonSet"} {
		if b, err := os.ReadFile(filepath.Join(dir, "sluice", name)); err != nil || !strings.Contains(string(b), want) {
			t.Errorf("%s: %v, want %q in\n%s", name, err, want, b)
		}
	}
}

func TestPackageVersionsSort(t *testing.T) {
	for in, want := range map[string]string{"v1.2.3": "1.2.3", "v1.2.3-4-gabc": "0.0.0~1.2.3.4.gabc", "abc-dirty": "0.0.0~abc.dirty", "unknown": "0.0.0~unknown"} {
		if got := (release{version: in}).number(); got != want {
			t.Errorf("%s is %s as a package, want %s", in, got, want)
		}
	}
}
