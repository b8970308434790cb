package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/coe-bridge/coe-bridge/cni/ovs"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
)

// post makes the pod of a caller that knows no Kubernetes. That it will be made is
// noted before.
func (a *Agent) post(ctx context.Context, at *attachment, undo *undo) error {
	wanted := at.network.wanted
	if len(wanted.addresses) > 1 {
		return invalid("addresses %s were asked for: a pod that is made for a container can have one", wanted.addresses)
	}
	noted, err := a.notes.has(at.pod.uid)
	if err != nil {
		return err
	}
	if noted && a.cfg.Uplink.Find(at.pod.is) != nil {
		return nil
	}
	if !noted {
		undo.before(func(ctx context.Context) error { return a.withdraw(ctx, at.pod.uid) })
		if err := a.notes.write(at.pod.uid, at.Attachment); err != nil {
			return err
		}
	}
	p := uplink.Pod{UID: at.pod.uid, InterfaceUID: at.pod.uid, Namespace: at.pod.namespace, Name: at.pod.name, MAC: wanted.mac}
	if len(wanted.addresses) > 0 {
		p.Address = wanted.addresses[0]
	}
	return a.cfg.Uplink.Post(ctx, p)
}

// withdraw removes a pod that was made, and its note.
func (a *Agent) withdraw(ctx context.Context, uid string) error {
	if noted, err := a.notes.has(uid); err != nil || !noted {
		return err
	}
	if err := a.cfg.Uplink.Delete(ctx, uid); err != nil {
		return err
	}
	return a.notes.remove(uid)
}

// withdrawTimeout bounds how long a DEL is kept by a bridge that does not answer.
const withdrawTimeout = 3 * time.Second

// withdrawSoon withdraws a pod, now or, where the bridge is away, in a later sweep.
func (a *Agent) withdrawSoon(ctx context.Context, uid string) {
	ctx, cancel := context.WithTimeout(ctx, withdrawTimeout)
	defer cancel()
	if err := a.withdraw(ctx, uid); err != nil {
		a.log.Warn("the bridge keeps a pod whose container is gone; trying again later", "uid", uid, "err", err)
	}
}

// notes are the pods that the agent has made: a file for each.
type notes struct{ dir string }

// note is the attachment that a pod was made for.
type note struct {
	Container string `json:"container"`
	IfName    string `json:"ifName"`
}

// nextNote begins the name of a note that is being written.
const nextNote = "next-"

func (n notes) folder() string         { return filepath.Join(n.dir, "pods") }
func (n notes) file(uid string) string { return filepath.Join(n.folder(), uid) }

func (n notes) open() error {
	if err := os.MkdirAll(n.folder(), 0o700); err != nil {
		return fmt.Errorf("make the folder of notes: %w", err)
	}
	return nil
}

func (n notes) has(uid string) (bool, error) {
	_, err := os.Stat(n.file(uid))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func (n notes) write(uid string, of ovs.Attachment) error {
	text, err := json.Marshal(note{of.Container, of.IfName})
	next := filepath.Join(n.dir, nextNote+uid)
	if err == nil {
		err = os.WriteFile(next, text, 0o600)
	}
	if err == nil {
		err = os.Rename(next, n.file(uid))
	}
	if err != nil {
		return fmt.Errorf("note a pod: %w", err)
	}
	return nil
}

func (n notes) remove(uid string) error {
	if err := os.Remove(n.file(uid)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the note of a pod: %w", err)
	}
	return nil
}

// all reads the notes, by uid.
func (n notes) all() (map[string]ovs.Attachment, error) {
	entries, err := os.ReadDir(n.folder())
	if err != nil {
		return nil, fmt.Errorf("read notes: %w", err)
	}
	all := map[string]ovs.Attachment{}
	for _, e := range entries {
		text, err := os.ReadFile(n.file(e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read a note: %w", err)
		}
		var of note
		if err := json.Unmarshal(text, &of); err != nil {
			return nil, fmt.Errorf("read note %s: %w", e.Name(), err)
		}
		all[e.Name()] = ovs.Attachment{Container: of.Container, IfName: of.IfName}
	}
	return all, nil
}
