package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.uber.org/zap"
)

// bare is a handler in a server of net/http, for comparison.
type bare struct {
	*client
	server *http.Server
	done   chan error
}

func serveBare(h http.Handler) (*bare, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	s := &bare{
		client: newClient("http://" + listener.Addr().String()),
		server: &http.Server{Handler: h, ReadHeaderTimeout: time.Second},
		done:   make(chan error, 1),
	}
	go func() { s.done <- s.server.Serve(listener) }()
	return s, nil
}

func (s *bare) stop() error {
	s.Close()
	err := s.server.Close()
	<-s.done // the error says that the server was closed
	return err
}

// startEtcd starts an embedded etcd that is like the bridge's in all that affects the speed: it is
// the only member, has no port, and answers when a write is on disk.
func startEtcd(ctx context.Context, dir string) (*embed.Etcd, error) {
	c := embed.NewConfig()
	c.Dir, c.Name = dir, "bare"
	peer := url.URL{Scheme: "unix", Host: c.Name}
	c.AdvertisePeerUrls, c.InitialCluster = []url.URL{peer}, c.Name+"="+peer.String()
	c.ListenPeerUrls, c.ListenClientUrls, c.AdvertiseClientUrls = nil, nil, nil
	c.TickMs, c.ElectionMs = 50, 250
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	etcd, err := embed.StartEtcd(c)
	if err != nil {
		return nil, fmt.Errorf("start an etcd to compare with: %w", err)
	}
	select {
	case <-etcd.Server.ReadyNotify():
		return etcd, nil
	case <-ctx.Done():
		etcd.Close()
		return nil, ctx.Err()
	}
}

// barePods is the body of a pod's PUT as encoding/json decodes it.
type barePods struct {
	Pods []struct {
		UID       string `json:"uid"`
		Name      string `json:"name"`
		Namespace string `json:"network-NS"`
		Host      string `json:"host-ip-address"`
		Interface []struct {
			UID            string `json:"uid"`
			Network        string `json:"network-id"`
			NetworkType    string `json:"network-type"`
			SegmentationID uint32 `json:"segmentation-id"`
		} `json:"interface"`
	} `json:"pods"`
}

// barePut decodes a pod, puts it into etcd, and does nothing else.
type barePut struct{ etcd *clientv3.Client }

func newBarePut(etcd *embed.Etcd) barePut { return barePut{v3client.New(etcd.Server)} }

// ServeHTTP implements http.Handler.
func (h barePut) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := h.put(r); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusCreated)
}

func (h barePut) put(r *http.Request) error {
	content, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	var body barePods
	if err := json.Unmarshal(content, &body); err != nil {
		return err
	}
	if len(body.Pods) != 1 {
		return errors.New("want one pod")
	}
	_, err = h.etcd.Put(r.Context(), "/bare/"+body.Pods[0].UID, string(content))
	return err
}
