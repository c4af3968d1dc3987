package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// mount gives a machine its own view: /proc and /sys of its namespaces, and on nodes /run, /var and
// /opt that are empty at first, and /etc that is this machine's with what is written on top.
func (m machine) mount() error {
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("keep mounts private: %w", err)
	}
	steps := []func() error{m.mountProc}
	if m.Node {
		steps = append(steps, m.mountSys, m.mountOwn)
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	// Containers are shown mounts that come later: the network namespaces of pods.
	return unix.Mount("", "/", "", unix.MS_SHARED|unix.MS_REC, "")
}

func (m machine) mountProc() error { return mountAt("proc", "proc", "/proc", "") }

// mountSys mounts /sys with the devices of the machine's network namespace, the cgroups there are,
// and a bpf file system.
func (m machine) mountSys() error {
	groups := filepath.Join(m.Dir, "cgroup")
	if err := bind("/sys/fs/cgroup", groups); err != nil {
		return err
	}
	if err := mountAt("sysfs", "sysfs", "/sys", ""); err != nil {
		return err
	}
	if err := bind(groups, "/sys/fs/cgroup"); err != nil {
		return err
	}
	return mountAt("bpf", "bpf", "/sys/fs/bpf", "mode=0700")
}

// mountOwn mounts what a node writes to.
func (m machine) mountOwn() error {
	if err := mountAt("tmpfs", "tmpfs", "/run", "mode=0755"); err != nil {
		return err
	}
	for _, dir := range []string{"/var/lib", "/var/log", "/opt"} {
		if err := bind(filepath.Join(m.Dir, "files", dir), dir); err != nil {
			return err
		}
	}
	upper, work := filepath.Join(m.Dir, "files", "etc"), filepath.Join(m.Dir, "files", "etc.work")
	if err := errors.Join(os.MkdirAll(upper, 0o755), os.MkdirAll(work, 0o755)); err != nil {
		return err
	}
	return mountAt("overlay", "overlay", "/etc", "lowerdir=/etc,upperdir="+upper+",workdir="+work)
}

func mountAt(source, kind, target, options string) error {
	if err := unix.Mount(source, target, kind, 0, options); err != nil {
		return fmt.Errorf("mount %s at %s: %w", kind, target, err)
	}
	return nil
}

// bind shows a folder at another place, with what is mounted in it.
func bind(from, to string) error {
	for _, dir := range []string{from, to} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind %s to %s: %w", from, to, err)
	}
	return nil
}

// group is the cgroup below which a node of this cluster has all of its own.
func (s site) group(machine string) string { return filepath.Base(s.dir) + "-" + machine }

// hierarchies returns the roots of the cgroup file systems: one of version 2, or many of version 1.
func hierarchies() ([]string, error) {
	const root = "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err == nil {
		return []string{root}, nil
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if e.IsDir() {
			out = append(out, filepath.Join(root, e.Name()))
		}
	}
	return out, nil
}

// makeGroups makes a cgroup with all controllers.
func makeGroups(group string) error {
	roots, err := hierarchies()
	if err != nil {
		return err
	}
	for _, root := range roots {
		dir := filepath.Join(root, group)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} { // version 1: empty in a new group
			text, err := os.ReadFile(filepath.Join(root, file))
			if errors.Is(err, os.ErrNotExist) {
				continue
			}
			if err := errors.Join(err, os.WriteFile(filepath.Join(dir, file), text, 0o644)); err != nil {
				return err
			}
		}
		if text, err := os.ReadFile(filepath.Join(root, "cgroup.controllers")); err == nil && len(roots) == 1 {
			if err := enableAll(root, string(text)); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeGroups removes a cgroup, from the leaves up.
func removeGroups(group string) error {
	roots, err := hierarchies()
	if err != nil {
		return err
	}
	for _, root := range roots {
		var dirs []string
		err := filepath.WalkDir(filepath.Join(root, group), func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			if errors.Is(err, os.ErrNotExist) {
				return nil
			}
			return err
		})
		if err != nil {
			return err
		}
		slices.Reverse(dirs)
		for _, dir := range dirs {
			if err := await("the end of the processes in "+dir, func() error { return os.Remove(dir) }); err != nil {
				return err
			}
		}
	}
	return nil
}
