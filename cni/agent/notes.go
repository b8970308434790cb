package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/uuid"

	"github.com/coe-bridge/coe-bridge/cni/durable"
	"github.com/coe-bridge/coe-bridge/cni/ovs/vif"
)

// notes record the pods that the agent creates: a file for each, named after the UID of
// the pod. A note is written before the pod is created, and removed after the pod. The
// name of an unreadable note still identifies the pod.
type notes struct{ dir string }

// note is the attachment that a pod was created for.
type note struct {
	Container string `json:"container"`
	IfName    string `json:"ifName"`
}

func (n notes) folder() string         { return filepath.Join(n.dir, "pods") }
func (n notes) file(uid string) string { return filepath.Join(n.folder(), uid) }

// open creates the directory, and removes unfinished files.
func (n notes) open() error {
	if err := os.MkdirAll(n.folder(), 0o700); err != nil {
		return fmt.Errorf("create the directory of notes: %w", err)
	}
	return durable.Clean(n.folder())
}

// has reports whether a pod has a note, readable or not.
func (n notes) has(uid string) (bool, error) {
	_, err := os.Stat(n.file(uid))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// write writes the note of a pod. The note is durable when write returns nil.
func (n notes) write(uid string, of vif.Attachment) error {
	text, err := json.Marshal(note{of.Container, of.IfName})
	if err == nil {
		err = durable.Write(n.file(uid), text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write the note of a pod: %w", err)
	}
	return nil
}

func (n notes) remove(uid string) error {
	if err := os.Remove(n.file(uid)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the note of a pod: %w", err)
	}
	return nil
}

// read reads the note of a pod.
func (n notes) read(uid string) (vif.Attachment, error) {
	text, err := os.ReadFile(n.file(uid))
	if err != nil {
		return vif.Attachment{}, err
	}
	var of note
	if err := json.Unmarshal(text, &of); err != nil {
		return vif.Attachment{}, fmt.Errorf("read note %s: %w", n.file(uid), err)
	}
	if of.Container == "" || of.IfName == "" {
		return vif.Attachment{}, fmt.Errorf("read note %s: container or interface is missing", n.file(uid))
	}
	return vif.Attachment{Container: of.Container, IfName: of.IfName}, nil
}

// all reads the notes, by UID. It returns notes that cannot be read in unreadable, with
// the reason. It ignores files that are not notes.
func (n notes) all() (readable map[string]vif.Attachment, unreadable map[string]error, err error) {
	entries, err := os.ReadDir(n.folder())
	if err != nil {
		return nil, nil, fmt.Errorf("list notes: %w", err)
	}
	readable, unreadable = map[string]vif.Attachment{}, map[string]error{}
	for _, e := range entries {
		uid := e.Name()
		if uuid.Validate(uid) != nil {
			continue
		}
		of, err := n.read(uid)
		switch {
		case errors.Is(err, fs.ErrNotExist): // a call has removed it
		case err != nil:
			unreadable[uid] = err
		default:
			readable[uid] = of
		}
	}
	return readable, unreadable, nil
}

// CheckNotes fails if the state directory of an agent holds notes that cannot be read.
func CheckNotes(dir string) error {
	_, unreadable, err := notes{dir}.all()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, why := range unreadable {
		err = errors.Join(err, why)
	}
	return err
}
