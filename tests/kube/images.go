package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
)

// Names of images, as those who ask for them name them: containerd and the upstream tests.
const (
	pauseImage   = "registry.k8s.io/pause:3.10.2"
	agnhostImage = "registry.k8s.io/e2e-test-images/agnhost:2.63.0"
)

// image is programs on an empty file system, as docker/Dockerfile builds them.
type image struct {
	name    string
	program string // the first one's file on this machine
	path    string // in the image
	beside  string // another program's file, which is in the same folder of the image
	args    []string
	user    string
	env     []string
	folders []string // that the program writes to
}

// images returns all images of a node.
func (l *lab) images() []image {
	sluice := func(name string) image {
		return image{name: "docker.io/library/" + name + ":dev", program: filepath.Join(l.Bin, name), path: "usr/bin/" + name, user: "65532:65532",
			env: []string{"SLUICE_API_SOCKET=/run/sluice/agent.sock"}, folders: []string{"run/sluice", "var/lib/sluice/agent", "var/lib/sluice/etcd"}}
	}
	agent := sluice("sluice-agent")
	agent.beside = filepath.Join(l.Bin, "sluice-cni")
	agnhost := filepath.Join(l.Kube, "agnhost")
	return []image{
		{name: pauseImage, program: agnhost, path: "agnhost", args: []string{"pause"}, user: "65535:65535"},
		{name: agnhostImage, program: agnhost, path: "agnhost"},
		agent, sluice("sluice-ksr"),
	}
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
	manifest, err := json.Marshal([]map[string]any{{"Config": digest(config) + ".json", "RepoTags": []string{i.name}, "Layers": []string{digest(layer) + "/layer.tar"}}})
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
		for parent := filepath.Dir(dir); parent != "."; parent = filepath.Dir(parent) {
			out = append(out, entry{name: parent + "/", mode: 0o755})
		}
		out = append(out, entry{name: dir + "/", mode: 0o700, owner: 65532})
	}
	programs := map[string]string{i.path: i.program}
	if i.beside != "" {
		programs[filepath.Join(filepath.Dir(i.path), filepath.Base(i.beside))] = i.beside
	}
	for _, path := range slices.Sorted(maps.Keys(programs)) {
		text, err := os.ReadFile(programs[path])
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

// load brings the images to a node.
func (l *lab) loadImages(name string) error {
	for _, i := range l.images() {
		text, err := i.archive()
		if err != nil {
			return err
		}
		if _, err := l.run(name, string(text), "ctr", "-a", runtimeSocket, "-n", "k8s.io", "images", "import", "-"); err != nil {
			return err
		}
	}
	return nil
}
