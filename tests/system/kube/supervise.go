package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// initCommand makes this program the first process of a machine.
const initCommand = "init"

// machine is the configuration of the first process of a machine.
type machine struct {
	Name     string
	Dir      string // its folder, below that of the lab
	Node     bool   // it has files of its own, as a machine has
	Programs []program
	Env      []string
}

// program is run again whenever it ends, as by systemd.
type program struct {
	Name string
	Args []string
}

// boot starts a machine that does not run. It is no child of this process for long.
func (s site) boot(m machine) error {
	if s.pid(m.Name) != 0 {
		return nil
	}
	if err := os.MkdirAll(filepath.Join(m.Dir, "log"), 0o755); err != nil {
		return err
	}
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	spec := filepath.Join(m.Dir, "machine.json")
	if err := os.WriteFile(spec, text, 0o600); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	// "go run" removes its binary.
	copied := s.path("kube")
	if err := copyFile(self, copied); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(m.Dir, "log", "init"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the program has its own
	c := exec.Command(copied, initCommand, spec)
	c.Stdout, c.Stderr = log, log
	c.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true,
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
	}
	if err := c.Start(); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(m.Dir, "pid"), fmt.Appendln(nil, c.Process.Pid), 0o600); err != nil {
		return errors.Join(err, c.Process.Kill())
	}
	return c.Process.Release()
}

// supervise is the first process of a machine. It returns when something is wrong.
func supervise(spec string) error {
	text, err := os.ReadFile(spec)
	if err != nil {
		return err
	}
	var m machine
	if err := json.Unmarshal(text, &m); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(m.Name)); err != nil {
		return err
	}
	if err := m.mount(); err != nil {
		return err
	}
	running := make(map[int]program)
	for _, p := range m.Programs {
		if err := m.start(p, running); err != nil {
			return err
		}
	}
	return m.keep(running)
}

// start starts a program, with a log and a file with its process id as this machine sees it.
func (m machine) start(p program, running map[int]program) error {
	log, err := os.OpenFile(filepath.Join(m.Dir, "log", p.Name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the program has its own
	nothing, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer func() { _ = nothing.Close() }() // the same
	process, err := os.StartProcess(p.Args[0], p.Args, &os.ProcAttr{
		Dir: "/", Env: m.Env, Files: []*os.File{nothing, log, log}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return fmt.Errorf("%s: %w", p.Name, err)
	}
	running[process.Pid] = p
	return process.Release()
}

// keep waits for all processes that end, orphans too, and starts programs again.
func (m machine) keep(running map[int]program) error {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ECHILD): // a machine without programs
			time.Sleep(time.Hour)
			continue
		case err != nil:
			return err
		}
		p, ours := running[pid]
		if !ours {
			continue
		}
		delete(running, pid)
		fmt.Fprintf(os.Stderr, "%s %s ended: exit %d, signal %d\n", time.Now().Format(time.TimeOnly), p.Name, status.ExitStatus(), status.Signal())
		time.Sleep(time.Second)
		if err := m.start(p, running); err != nil {
			return err
		}
	}
}

// copyFile replaces a file by a copy of another one.
func copyFile(from, to string) error {
	if from == to {
		return nil
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.WriteFile(to+".new", text, 0o755); err != nil {
		return err
	}
	return os.Rename(to+".new", to)
}
