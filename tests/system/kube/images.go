package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"
)

// Names of images, as containerd and the upstream tests use them.
const (
	pauseImage   = "registry.k8s.io/pause:3.10.2"
	agnhostImage = "registry.k8s.io/e2e-test-images/agnhost:2.66.1"
	corednsImage = "registry.k8s.io/coredns/coredns:dev"
	busyboxImage = "docker.io/library/busybox:1.37" // of which manifests use chown alone
)

// image is programs on an empty file system, as docker/Dockerfile builds them.
type image struct {
	names   []string
	files   map[string]string // paths in the image, and the programs of this machine that are there
	path    string            // of the program that is run
	args    []string
	user    string
	env     []string
	folders []string // that the program writes to
}

// images returns all images of a node.
func (l *lab) images() []image {
	sluice := func(name string) image {
		return image{names: []string{"docker.io/library/" + name + ":dev"}, path: "usr/bin/" + name,
			files: map[string]string{"usr/bin/" + name: filepath.Join(l.Bin, name)}, user: "65532:65532",
			env: []string{"SLUICE_API_SOCKET=/run/sluice/agent.sock"}, folders: []string{"run/sluice", "var/lib/sluice", "var/lib/sluice/agent", "var/lib/sluice/etcd"}}
	}
	agent := sluice("sluice-agent")
	for _, name := range []string{"sluice-cni", "sluicectl"} {
		agent.files["usr/bin/"+name] = filepath.Join(l.Bin, name)
	}
	pause := map[string]string{"agnhost": filepath.Join(l.Kube, "agnhost")}
	return []image{
		{names: []string{pauseImage}, files: pause, path: "agnhost", args: []string{"pause"}, user: "65535:65535"},
		{names: []string{agnhostImage}, files: l.agnhost(), path: "agnhost"},
		{names: []string{corednsImage}, files: map[string]string{"coredns": l.CoreDNS}, path: "coredns"},
		{names: []string{busyboxImage}, files: map[string]string{"usr/bin/" + chownCommand: l.path("kube")}, path: "usr/bin/" + chownCommand},
		agent, sluice("sluice-ksr"),
	}
}

// agnhost returns the files of the upstream tests' image. Where the kernel has no SCTP it brings
// its own.
func (s *settings) agnhost() map[string]string {
	original := filepath.Join(s.Kube, "agnhost")
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP)
	if err != nil {
		return map[string]string{"agnhost": s.SCTP, "agnhost.real": original}
	}
	_ = unix.Close(fd) // it was only tried
	return map[string]string{"agnhost": original}
}

// archive returns an image as "docker save" writes it (image specification v1.2).
func (i image) archive() ([]byte, error) {
	files, err := i.layer()
	if err != nil {
		return nil, err
	}
	layer, err := archive(files)
	if err != nil {
		return nil, err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": append([]string{"/" + i.path}, i.args...), "User": i.user, "Env": append([]string{"PATH=/usr/bin:/"}, i.env...), "WorkingDir": "/"},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + digest(layer)}},
	})
	if err != nil {
		return nil, err
	}
	manifest, err := json.Marshal([]map[string]any{{"Config": digest(config) + ".json", "RepoTags": i.names, "Layers": []string{digest(layer) + "/layer.tar"}}})
	if err != nil {
		return nil, err
	}
	return archive([]entry{
		{name: digest(config) + ".json", text: config, mode: 0o644},
		{name: digest(layer) + "/layer.tar", text: layer, mode: 0o644},
		{name: "manifest.json", text: manifest, mode: 0o644},
	})
}

// layer returns the files of an image.
func (i image) layer() ([]entry, error) {
	out := []entry{
		{name: "tmp/", mode: 0o1777},
		{name: "etc/passwd", text: []byte("root:x:0:0::/:\nnobody:x:65534:65534::/:\n"), mode: 0o644},
	}
	for _, dir := range i.folders {
		for parent := filepath.Dir(dir); parent != "." && !slices.Contains(i.folders, parent); parent = filepath.Dir(parent) {
			out = append(out, entry{name: parent + "/", mode: 0o755})
		}
		out = append(out, entry{name: dir + "/", mode: 0o700, owner: 65532})
	}
	for _, path := range slices.Sorted(maps.Keys(i.files)) {
		text, err := os.ReadFile(i.files[path])
		if err != nil {
			return nil, err
		}
		out = append(out, entry{name: path, text: text, mode: 0o755})
	}
	return out, nil
}

// entry is a file of an archive, or a folder, whose name ends in a slash.
type entry struct {
	name  string
	text  []byte
	mode  int64
	owner int
}

func archive(entries []entry) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		if err := w.WriteHeader(&tar.Header{Name: e.name, Mode: e.mode, Size: int64(len(e.text)), Uid: e.owner, Gid: e.owner}); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.text); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// loadImages brings images to a node.
func (s site) loadImages(name string, images ...image) error {
	for _, i := range images {
		text, err := i.archive()
		if err != nil {
			return err
		}
		if _, err := s.run(name, string(text), "ctr", "-a", runtimeSocket, "-n", "k8s.io", "images", "import", "-"); err != nil {
			return err
		}
	}
	return nil
}

// chownCommand is the program of busybox that manifests use: this one under another name.
const chownCommand = "chown"

// chown gives files an owner, as "chown USER:GROUP FILE..." with numbers does.
func chown(args []string) error {
	if len(args) < 2 {
		return errors.New("want USER:GROUP and files")
	}
	var user, group int
	if _, err := fmt.Sscanf(args[0], "%d:%d", &user, &group); err != nil {
		return fmt.Errorf("owner %q: want two numbers: %w", args[0], err)
	}
	for _, file := range args[1:] {
		if err := os.Chown(file, user, group); err != nil {
			return err
		}
	}
	return nil
}
