//! Listening, connections, shutdown.

use super::around::{around, not_found, wrong_method};
use super::stall::Stall;
use crate::config::{ConfigError, ServerConfig};
use crate::owner::{DrawFactory, Health, LoadError, Owner, Shared, sampler};
use crate::routes;
use axum::Router;
use axum::middleware::from_fn_with_state;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// Why a service ended, if it was not told to.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A setting is out of its range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The model cannot be served.
    #[error(transparent)]
    Load(#[from] LoadError),
}

/// Serves until `shutdown` is done, or until the model turns out not to load.
///
/// # Errors
/// If the configuration is wrong, the address is taken, or the model cannot be loaded.
pub async fn serve(
    config: ServerConfig,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ServeError> {
    Server::bind(config).await?.run(shutdown).await
}

/// A service that listens already: clients can connect and wait.
pub struct Server {
    listener: TcpListener,
    shared: Arc<Shared>,
    draw: DrawFactory,
}

impl Server {
    /// Listens, and does nothing else yet.
    ///
    /// # Errors
    /// If the configuration is wrong or the address is taken.
    pub async fn bind(config: ServerConfig) -> Result<Server, ServeError> {
        config.check()?;
        let address = config.address;
        let listen = |source| ServeError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(listen)?;
        let mut config = config;
        config.address = listener.local_addr().map_err(listen)?;
        Ok(Server { listener, shared: Arc::new(Shared::new(config)), draw: sampler() })
    }

    /// Where it listens, the port included if the configuration left that to the system.
    pub fn address(&self) -> SocketAddr {
        self.shared.config.address
    }

    /// Draws tokens with something else than the engine's sampler. For scripted tests and evaluations.
    #[must_use]
    pub fn with_draw(mut self, draw: DrawFactory) -> Server {
        self.draw = draw;
        self
    }

    /// As [`serve`].
    ///
    /// # Errors
    /// If the model cannot be loaded.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send) -> Result<(), ServeError> {
        let Server { listener, shared, draw } = self;
        tracing::info!(address = %shared.config.address, "listening");
        // Before the thread begins, so that no change is missed.
        let mut health = shared.status.watch_health();
        let owner = Owner::spawn(shared.clone(), draw)?;
        let app = router(shared.clone());
        let graceful = GracefulShutdown::new();
        let connections = Arc::new(Semaphore::new(shared.config.limits.connections));

        let mut shutdown = std::pin::pin!(shutdown);
        let mut serving = false;
        loop {
            let accept = async {
                let permit = connections.clone().acquire_owned().await;
                (listener.accept().await, permit)
            };
            tokio::select! {
                () = &mut shutdown => break,
                changed = health.changed() => match (changed, shared.status.health()) {
                    // A model that was never served: nothing is left to do. Later, health tells supervisors.
                    (Ok(()), Health::Failed(_)) if !serving => break,
                    (Ok(()), health) => serving |= health == Health::Ready,
                    (Err(_), _) => break,
                },
                (accepted, permit) = accept => match accepted {
                    Ok((stream, peer)) => {
                        tracing::debug!(%peer, "connection");
                        let connection = connection(stream, app.clone(), &shared);
                        let connection = graceful.watch(connection);
                        tokio::spawn(async move {
                            if let Err(e) = connection.await {
                                tracing::debug!(%peer, error = %e, "connection ended");
                            }
                            drop(permit);
                        });
                    }
                    // Out of file descriptors, say: connections end, and then it goes on.
                    Err(e) => {
                        tracing::warn!(error = %e, "a connection could not be accepted");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                },
            }
        }
        drop(listener);
        let grace = shared.config.limits.shutdown_grace;
        tracing::info!(grace_s = grace.as_secs(), "shutting down");
        shared.stop(Instant::now() + grace);
        let joined = tokio::task::spawn_blocking(move || owner.join());
        // Once the engine has ended every sequence, what is left is only text on its way.
        let result = joined.await.unwrap_or_else(|e| Err(LoadError::Panicked { reason: e.to_string() }));
        if tokio::time::timeout(Duration::from_secs(5), graceful.shutdown()).await.is_err() {
            tracing::warn!("connections were still open at the end");
        }
        tracing::info!("ended");
        Ok(result?)
    }
}

fn router(shared: Arc<Shared>) -> Router {
    routes::routes()
        .fallback(not_found)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(shared.clone(), around))
        .with_state(shared)
}

type Connection = http1::Connection<TokioIo<Stall>, TowerToHyperService<Router>>;

fn connection(stream: TcpStream, app: Router, shared: &Shared) -> Connection {
    // Tokens are small and must not wait for each other.
    let _ = stream.set_nodelay(true);
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(shared.config.limits.header_timeout)
        .max_buf_size(64 << 10)
        .serve_connection(
            TokioIo::new(Stall::new(stream, shared.config.limits.write_timeout)),
            TowerToHyperService::new(app),
        )
}
