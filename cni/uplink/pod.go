package uplink

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
)

// Pod is a pod that the agent creates for a caller without Kubernetes.
type Pod struct {
	UID, Namespace, Name string
	InterfaceUID         string
	Address              netip.Addr // requested; zero: any
	MAC                  string     // requested; empty: any
}

// podEntity is an entry of the list pods in the YANG module pod.
type podEntity struct {
	UID        string            `json:"uid"`
	Name       string            `json:"name"`
	Namespace  string            `json:"network-NS"`
	Node       netip.Addr        `json:"host-ip-address"`
	MAC        string            `json:"port-mac-address,omitempty"`
	Interfaces []interfaceEntity `json:"interface"`
}

type interfaceEntity struct {
	UID     string     `json:"uid"`
	Address netip.Addr `json:"ip-address,omitzero"`
}

const pods = "/rests/data/pod:coe"

// Post creates a pod on the node. It is not an error if a pod with this UID already exists.
func (u *Uplink) Post(ctx context.Context, p Pod) error {
	body := map[string][]podEntity{"pod:pods": {{
		UID: p.UID, Name: p.Name, Namespace: p.Namespace, Node: u.cfg.Node, MAC: p.MAC,
		Interfaces: []interfaceEntity{{p.InterfaceUID, p.Address}},
	}}}
	text, err := json.Marshal(body)
	if err == nil {
		err = u.ask(ctx, http.MethodPost, pods, text, http.StatusConflict, nil)
	}
	if err != nil {
		return fmt.Errorf("create pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	return nil
}

// Delete deletes a pod. It is not an error if the pod does not exist.
func (u *Uplink) Delete(ctx context.Context, uid string) error {
	if err := u.ask(ctx, http.MethodDelete, pods+"/pods="+uid, nil, http.StatusNotFound, nil); err != nil {
		return fmt.Errorf("delete pod %s: %w", uid, err)
	}
	return nil
}

// Problem returns the reason that the bridge reports for a pod of its node that is not
// ready; empty if it reports none.
func (u *Uplink) Problem(ctx context.Context, namespace, uid string) (string, error) {
	var answer struct {
		Pods []struct {
			Missing string
			Stages  []struct{ Name, Detail string } `json:"stage"`
		} `json:"coe-status:pod"`
	}
	path := "/rests/data/coe-status:pods/namespace=" + url.PathEscape(namespace) + "/pod=" + url.PathEscape(uid)
	if err := u.ask(ctx, http.MethodGet, path, nil, 0, &answer); err != nil {
		return "", fmt.Errorf("read the status of pod %s: %w", uid, err)
	}
	for _, p := range answer.Pods {
		for _, s := range p.Stages {
			if s.Name == p.Missing {
				return s.Detail, nil
			}
		}
	}
	return "", nil
}

// ask sends a request to one replica after the other, first to the one that the Uplink follows. The caller can have no time left
// after another one that does not answer. It stops at a success, at status alsoGood, or at a refusal (4xx).
func (u *Uplink) ask(ctx context.Context, method, path string, body []byte, alsoGood int, out any) error {
	var errs []error
	u.mu.Lock()
	first := u.followed
	u.mu.Unlock()
	for i := range u.cfg.URLs {
		at := u.cfg.URLs[(first+i)%len(u.cfg.URLs)]
		status, err := u.askAt(ctx, method, at+path, body, out)
		switch {
		case err == nil, status == alsoGood && alsoGood != 0:
			return nil
		case status/100 == 4:
			return err
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (u *Uplink) askAt(ctx context.Context, method, at string, body []byte, out any) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, at, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Content-Type", "application/yang-data+json")
	r.Header.Set("Accept", "application/yang-data+json")
	if err := u.authorize(r); err != nil {
		return 0, err
	}
	answer, err := u.http.Do(r)
	if err != nil {
		return 0, err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode/100 != 2 {
		return answer.StatusCode, refusal(answer)
	}
	if out == nil {
		return answer.StatusCode, nil
	}
	return answer.StatusCode, json.NewDecoder(answer.Body).Decode(out)
}
