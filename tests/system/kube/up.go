package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// step is a part of up, which prints a line for each.
type step struct {
	what string
	do   func() error
}

// up starts what is not running.
func (l *lab) up(ctx context.Context) error {
	if err := errors.Join(l.check(), os.MkdirAll(l.dir, 0o755)); err != nil {
		return err
	}
	if old := (&lab{site: l.site}); old.load() == nil && old.pid(control) != 0 && *old != *l {
		return fmt.Errorf("a cluster with other settings runs in %s: stop it with down", l.dir)
	}
	if err := l.save(); err != nil {
		return err
	}
	steps := []step{
		{"secrets", secrets{l}.write},
		{"control plane", l.startControl},
	}
	for n := 1; n <= l.Nodes; n++ {
		steps = append(steps, step{"machine of " + nodeName(n), func() error { return l.node(n).start() }})
	}
	for n := 1; n <= l.Nodes; n++ {
		steps = append(steps, step{"images of " + nodeName(n), func() error { return l.node(n).fill() }})
	}
	if !l.Bare {
		steps = append(steps, step{"Sluice", l.install})
	}
	steps = append(steps, step{"CoreDNS", l.installDNS})
	begin := time.Now()
	for _, s := range steps {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.do(); err != nil {
			return fmt.Errorf("%s: %w", s.what, err)
		}
		fmt.Printf("%6.1fs  %s\n", time.Since(begin).Seconds(), s.what)
	}
	out, err := l.kube("", "get", "nodes", "-o", "wide")
	if err != nil {
		return err
	}
	fmt.Printf("\n%s\n%s\n", out, l.hint())
	return nil
}

// hint is the command that talks with this cluster.
func (l *lab) hint() string {
	where := ""
	if l.dir != defaultDir() {
		where = dirVariable + "=" + l.dir + " "
	}
	return where + "go run ./tests/system/kube kubectl --help  talks with this cluster"
}

func (l *lab) startControl() error {
	if err := l.boot(l.controlPlane()); err != nil {
		return err
	}
	if err := l.addFabric(); err != nil {
		return err
	}
	return await("the API server", func() error {
		_, err := l.kube("", "get", "--raw", "/readyz")
		return err
	})
}

func (n node) start() error {
	if err := errors.Join(n.configure(), makeGroups(n.group(n.name())), n.boot(n.machine())); err != nil {
		return err
	}
	// Its view of the files is there once it has its host name and mounts.
	if err := await("its mounts", func() error {
		_, err := n.run(n.name(), "", "test", "-d", "/etc/cni/net.d")
		return err
	}); err != nil {
		return err
	}
	if err := errors.Join(n.plug(), n.settle(n.name())); err != nil || !n.onVPP() {
		return err
	}
	return await("VPP, see "+n.path(n.name(), "log")+",", func() error {
		_, err := n.run(n.name(), "", "test", "-e", vppReady)
		return err
	})
}

// fill waits until a node takes images, and until it is ready for pods.
func (n node) fill() error {
	if err := await("containerd", func() error {
		_, err := n.run(n.name(), "", "ctr", "-a", runtimeSocket, "version")
		return err
	}); err != nil {
		return err
	}
	if err := n.loadImages(n.name(), n.images()...); err != nil {
		return err
	}
	return await("the kubelet", func() error {
		_, err := n.kube("", "wait", "--for=condition=Ready", "--timeout=10s", "node/"+n.name())
		return err
	})
}

// edits are the changes of a user to the manifests: where etcd is, and where services are that VPP
// translates. The last one is for containerd before 1.7, whose default profile allows bpf() only
// with CAP_SYS_ADMIN.
func (l *lab) edits() *strings.Replacer {
	return strings.NewReplacer(
		`["10.0.0.1:2379", "10.0.0.2:2379", "10.0.0.3:2379"]`, `["`+l.at("2379")+`"]`,
		"    vpp-socket:", fmt.Sprintf("    service-cidr: [%s]\n    vpp-socket:", l.each(func(f family) string { return strconv.Quote(f.services) })),
		"type: RuntimeDefault", "type: Unconfined",
	)
}

// copyEdited copies folders of one folder to another, with the changes of a user to their files.
func copyEdited(from, to string, edits *strings.Replacer, dirs ...string) error {
	for _, dir := range dirs {
		if err := os.CopyFS(filepath.Join(to, dir), os.DirFS(filepath.Join(from, dir))); err != nil {
			return err
		}
	}
	return filepath.WalkDir(to, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(path, []byte(edits.Replace(string(text))), 0o600)
	})
}

// install installs Sluice by the overlay of its dataplane, as docs/guide/ksr.md says, and waits
// until it is ready.
func (l *lab) install() error {
	for _, name := range []string{"sluice-ksr-etcd", "sluice-agent-etcd"} {
		secret, err := l.kube("", "-n", "kube-system", "create", "secret", "generic", name, "--dry-run=client", "-o", "yaml",
			"--from-file=ca.crt="+l.path("ca.crt"), "--from-file=tls.crt="+l.path("etcd-client.crt"), "--from-file=tls.key="+l.path("etcd-client.key"))
		if err != nil {
			return err
		}
		if _, err := l.kube(secret, "apply", "-f", "-"); err != nil {
			return err
		}
	}
	overlay, agent := "ha-kernel", "sluice-agent-xdp"
	if l.onVPP() {
		overlay, agent = "ha-vpp", "sluice-agent-vpp"
	}
	own := l.path("own")
	if err := errors.Join(os.RemoveAll(own), copyEdited(l.Source, own, l.edits(), "deploy")); err != nil {
		return err
	}
	if _, err := l.kube("", "apply", "-k", filepath.Join(own, "deploy/kustomize", overlay)); err != nil {
		return err
	}
	for _, what := range []string{"deployment/sluice-ksr", "daemonset/" + agent} {
		if _, err := l.kube("", "-n", "kube-system", "rollout", "status", what, "--timeout", patience.String()); err != nil {
			return err
		}
	}
	return nil
}
