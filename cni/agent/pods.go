package agent

import (
	"context"
	"time"

	"github.com/coe-bridge/coe-bridge/cni/uplink"
)

// post creates the pod of an external caller. It writes a note before it creates the pod.
func (a *Agent) post(ctx context.Context, at *attachment, undo *undo) error {
	wanted := at.network.wanted
	if len(wanted.addresses) > 1 {
		return invalid("addresses %s were requested: a pod without Kubernetes can have one", wanted.addresses)
	}
	release, err := a.pods.take(ctx, at.pod.uid)
	if err != nil {
		return err
	}
	undo.hold(release)
	made, err := a.notes.has(at.pod.uid)
	if err != nil {
		return err
	}
	of, err := a.notes.read(at.pod.uid)
	noted := err == nil && of.Same(at.Attachment)
	if noted && a.cfg.Uplink.Find(at.pod.is) != nil {
		return nil
	}
	if !made {
		undo.before(func(ctx context.Context) error { return a.withdraw(ctx, at.pod.uid) })
	}
	if !noted {
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

// withdraw removes a pod that the agent created, and its note, which need not be readable.
func (a *Agent) withdraw(ctx context.Context, uid string) error {
	if noted, err := a.notes.has(uid); err != nil || !noted {
		return err
	}
	if err := a.cfg.Uplink.Delete(ctx, uid); err != nil {
		return err
	}
	return a.notes.remove(uid)
}

// withdrawTimeout bounds the wait of a DEL for a bridge that does not answer.
const withdrawTimeout = 3 * time.Second

// withdrawSoon withdraws a pod now or, if the bridge does not answer, in a later sweep.
func (a *Agent) withdrawSoon(ctx context.Context, uid string) {
	ctx, cancel := context.WithTimeout(ctx, withdrawTimeout)
	defer cancel()
	if err := a.withdraw(ctx, uid); err != nil {
		a.log.Warn("a pod whose container is gone could not be deleted on the bridge; retrying later", "uid", uid, "err", err)
	}
}
